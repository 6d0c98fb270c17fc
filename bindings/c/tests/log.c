/* Messages of the library, by level, until nobody listens any more. */
#include "check.h"

static int heard, loudest, spoke_of_stray;

static void listen(pclLogLevel_t level, const char *target, const char *message, void *user) {
  CHECK(user == &heard, "the pointer that was given");
  CHECK(strncmp(target, "paceline", 8) == 0 && message[0] != 0 && strchr(message, '\n') == NULL, "%s: %s", target, message);
  heard++;
  if ((int)level > loudest) loudest = (int)level;
  if (strstr(message, "PACELINE_STRAY") != NULL) spoke_of_stray++;
  CHECK(pclSetLogCallback(NULL, NULL, pclLogOff) == pclInvalidUsage, "a callback replaces itself");
}

static void make(void) {
  pclComm_t comm;
  OK(pclCommInitFromUrl(&comm, 1, "local://log", 0, NULL));
  OK(pclBarrier(comm, NULL));
  OK(pclCommDestroy(comm));
}

int main(void) {
  setenv("PACELINE_STRAY", "1", 1);
  make();
  CHECK(heard == 0, "before anyone listens");
  OK(pclSetLogCallback(listen, &heard, pclLogWarn));
  make();
  CHECK(spoke_of_stray == 1 && loudest == pclLogWarn, "%d, %d", spoke_of_stray, loudest);
  OK(pclSetLogCallback(listen, &heard, pclLogTrace));
  make();
  CHECK(spoke_of_stray == 2, "%d", spoke_of_stray);
  OK(pclSetLogCallback(listen, &heard, pclLogError));
  make();
  OK(pclSetLogCallback(NULL, NULL, pclLogTrace));
  make();
  CHECK(spoke_of_stray == 2, "%d, after the end", spoke_of_stray);
  return 0;
}
