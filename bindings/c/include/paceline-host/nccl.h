/* nccl.h for programs that run over memory of the host, without CUDA: see paceline_nccl.h. */
#ifndef PACELINE_NCCL_HOST
#define PACELINE_NCCL_HOST
#endif
#include "../paceline_nccl.h"
