/* nccl.h for programs that run over memory of devices: see paceline_nccl.h. */
#include "../paceline_nccl.h"
