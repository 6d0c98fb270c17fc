/* What the tests in C have in common: checks that say where they failed, and elements of every type. */
#ifndef CHECK_H_
#define CHECK_H_

#include <paceline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_rank = -1;

#define CHECK(condition, ...)                                                                                               \
  do {                                                                                                                      \
    if (!(condition)) {                                                                                                     \
      fprintf(stderr, "%s:%d: rank %d: %s: ", __FILE__, __LINE__, check_rank, #condition);                                  \
      fprintf(stderr, __VA_ARGS__);                                                                                         \
      fprintf(stderr, "\n");                                                                                                \
      exit(1);                                                                                                              \
    }                                                                                                                       \
  } while (0)

#define OK(call)                                                                                                            \
  do {                                                                                                                      \
    pclResult_t ok_result = (call);                                                                                         \
    CHECK(ok_result == pclSuccess, "%s is %d: %s", #call, (int)ok_result, pclGetLastError(NULL));                           \
  } while (0)

/* The call fails with this result and a text that has `words` in it. */
#define FAILS(result, words, call)                                                                                          \
  do {                                                                                                                      \
    pclResult_t fails_result = (call);                                                                                      \
    CHECK(fails_result == (result), "%s is %d: %s", #call, (int)fails_result, pclGetLastError(NULL));                       \
    CHECK(strstr(pclGetLastError(NULL), (words)) != NULL, "%s", pclGetLastError(NULL));                                     \
  } while (0)

static inline size_t size_of(pclDataType_t type) {
  static const size_t sizes[pclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

/* The bits of a small whole number above 0 as a float with `mantissa` bits and this bias. */
static inline unsigned bits_of(int value, int mantissa, int bias) {
  int exponent = 0;
  while ((value >> exponent) > 1) exponent++;
  unsigned rest = (unsigned)value - (1u << exponent);
  return (unsigned)(exponent + bias) << mantissa | (rest << mantissa) >> exponent;
}

/* Writes the number 1 to 8 as element `i`. */
static inline void put(pclDataType_t type, void *buffer, size_t i, int value) {
  switch (type) {
    case pclInt8: ((int8_t *)buffer)[i] = (int8_t)value; return;
    case pclUint8: ((uint8_t *)buffer)[i] = (uint8_t)value; return;
    case pclInt32: ((int32_t *)buffer)[i] = value; return;
    case pclUint32: ((uint32_t *)buffer)[i] = (uint32_t)value; return;
    case pclInt64: ((int64_t *)buffer)[i] = value; return;
    case pclUint64: ((uint64_t *)buffer)[i] = (uint64_t)value; return;
    case pclFloat16: ((uint16_t *)buffer)[i] = (uint16_t)bits_of(value, 10, 15); return;
    case pclFloat32: ((float *)buffer)[i] = (float)value; return;
    case pclFloat64: ((double *)buffer)[i] = value; return;
    case pclBfloat16: ((uint16_t *)buffer)[i] = (uint16_t)bits_of(value, 7, 127); return;
    case pclFloat8e4m3: ((uint8_t *)buffer)[i] = (uint8_t)bits_of(value, 3, 7); return;
    case pclFloat8e5m2: ((uint8_t *)buffer)[i] = (uint8_t)bits_of(value, 2, 15); return;
    default: CHECK(0, "type %d", (int)type);
  }
}

static inline int holds(pclDataType_t type, const void *buffer, size_t i, int value) {
  unsigned char want[8];
  put(type, want, 0, value);
  return memcmp((const char *)buffer + i * size_of(type), want, size_of(type)) == 0;
}

#endif
