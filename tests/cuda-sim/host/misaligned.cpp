// Counts misaligned accesses: what -fsanitize=alignment calls in place of the sanitizer's own library.
//
// The first one is said at once: if it is 16 bytes that are accessed, the processor may end the process right after.

#include <cstdio>

static thread_local unsigned long misaligned;

extern "C" void __ubsan_handle_type_mismatch_v1(void *, void *address) {
    if (misaligned++ == 0)
        fprintf(stderr, "a kernel accesses %p, which its type may not lie at\n", address);
}

extern "C" unsigned long paceline_misaligned_taken() {
    const unsigned long taken = misaligned;
    misaligned = 0;
    return taken;
}
