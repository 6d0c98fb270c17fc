/* paceline.h by itself. */
#include <paceline.h>

int main(void) {
  pclConfig_t config = PCL_CONFIG_INITIALIZER;
  pclCall_t call = PCL_CALL_INITIALIZER;
  int version = 0;
  return config.size == sizeof config && call.size == sizeof call && pclGetVersion(&version) == pclSuccess &&
                 version == PCL_VERSION_CODE
             ? 0
             : 1;
}
