// Counts misaligned accesses: what -fsanitize=alignment calls in place of the sanitizer's own library.

static thread_local unsigned long misaligned;

extern "C" void __ubsan_handle_type_mismatch_v1(void *, void *) { misaligned++; }

extern "C" unsigned long paceline_misaligned_taken() {
    const unsigned long taken = misaligned;
    misaligned = 0;
    return taken;
}
