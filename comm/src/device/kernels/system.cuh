// The system: what CUDA C++ has no words for, as PTX. The host's build has the same functions with the host's atomics.
//
// README.md, "order", says what each of these is for and why it is enough.

#ifndef PACELINE_HOST

namespace paceline {

// What another rank released, whatever the device that it runs on.
PACELINE_DEVICE Bits64 load_acquire(const Bits64 *from) {
    Bits64 value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

// Also releases what other threads of the block wrote before the barrier that they and this thread have passed.
PACELINE_DEVICE void store_release(Bits64 *to, Bits64 value) {
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(to), "l"(value) : "memory");
}

// A word that somebody may be writing, for its own sake only.
PACELINE_DEVICE Bits32 load_relaxed(const Bits32 *from) {
    Bits32 value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// Counts one more, and returns how many there were before.
PACELINE_DEVICE Bits32 count_one(Bits32 *counter) {
    Bits32 before;
    asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

// Makes 1 of 0. Whether this thread is the one that did.
PACELINE_DEVICE bool claim(Bits32 *word) {
    Bits32 before;
    asm volatile("atom.relaxed.gpu.cas.b32 %0, [%1], 0, 1;" : "=r"(before) : "l"(word) : "memory");
    return before == 0;
}

// A clock that the whole GPU has in common. It may step by a microsecond at once, or by more.
PACELINE_DEVICE Bits64 now_ns() {
    Bits64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

PACELINE_DEVICE void sleep_ns(Bits32 duration) { asm volatile("nanosleep.u32 %0;" : : "r"(duration)); }

// Between two looks at a flag. A GPU's threads go on beside each other; a host's have to be let.
PACELINE_DEVICE void relax() {}

}  // namespace paceline

#endif
