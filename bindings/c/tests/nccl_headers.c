/* nccl.h by itself, for memory of the host. */
#include <nccl.h>

int main(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  int version = 0;
  ncclComm_t comm = NCCL_COMM_NULL;
  if (ncclCommInitRankScalable(&comm, 1, 0, 0, NULL, &config) != ncclInvalidArgument) return 1;
  return ncclGetVersion(&version) == ncclSuccess && version == NCCL_VERSION_CODE &&
                 NCCL_VERSION_CODE == NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)
             ? 0
             : 1;
}
