/*
 * The sum of every rank's number, on every rank.
 *
 *   cc all_reduce.c $(pkg-config --cflags --libs paceline) -o all_reduce
 *   paceline launch -n 4 ./all_reduce            (or mpirun, torchrun, srun)
 *
 * or by hand, for two ranks of this host:
 *
 *   export PACELINE_RENDEZVOUS=local://example PACELINE_SIZE=2
 *   PACELINE_RANK=0 ./all_reduce & PACELINE_RANK=1 ./all_reduce
 */
#include <paceline.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the library's text, which says what went wrong, with whom, and what to try. */
static void check(pclResult_t result) {
  if (result == pclSuccess) return;
  fprintf(stderr, "%s\n", pclGetLastError(NULL));
  exit(1);
}

int main(void) {
  pclComm_t comm;
  int rank, size;
  check(pclCommInitFromEnv(&comm, NULL));
  check(pclCommUserRank(comm, &rank));
  check(pclCommCount(comm, &size));

  float mine = (float)rank + 1, sum;
  check(pclAllReduce(&mine, &sum, 1, pclFloat, pclSum, comm, NULL));
  printf("rank %d of %d: the sum of 1 to %d is %g\n", rank, size, size, sum);

  /* The same, while this thread does something else. */
  pclWork_t work;
  check(pclStartAllReduce(&mine, &sum, 1, pclFloat, pclMax, comm, NULL, &work));
  check(pclWorkWait(work, PCL_WAIT_FOREVER));
  check(pclWorkFree(work));
  if (sum != (float)size) return 1;

  check(pclCommDestroy(comm));
  return 0;
}
