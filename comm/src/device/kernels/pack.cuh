// Packs: 16 bytes, the most that a thread reads or writes at once, and the elements in them.
//
// Scratch is read and written in whole packs. A user's array begins where it begins: `read` and `write` deal with that.

namespace paceline {

struct alignas(16) Pack {
    Bits64 words[2];
};

template <class Bits, int N> PACELINE_DEVICE void unpack(Bits (&elements)[N], const Pack &pack) {
    const int per_word = 8 / sizeof(Bits);
#pragma unroll
    for (int lane = 0; lane < N; lane++)
        elements[lane] = (Bits)(pack.words[lane / per_word] >> (8 * sizeof(Bits) * (lane % per_word)));
}

template <class Bits, int N> PACELINE_DEVICE Pack packed(const Bits (&elements)[N]) {
    const int per_word = 8 / sizeof(Bits);
    Pack pack = {{0, 0}};
#pragma unroll
    for (int lane = 0; lane < N; lane++)
        pack.words[lane / per_word] |= (Bits64)elements[lane] << (8 * sizeof(Bits) * (lane % per_word));
    return pack;
}

// The 64 bits that begin `shift` bits after the start of `low`, for shifts from 0 to 63.
PACELINE_DEVICE Bits64 joined(Bits64 low, Bits64 high, Bits32 shift) {
    return shift == 0 ? low : (low >> shift) | (high << (64 - shift));
}

// The bytes of `array` from `at` on, a multiple of 16 and less than `bytes`, which is where the array ends.
//
// 16 bytes that begin anywhere lie in two packs: both are read, and what is wanted is put together. Each of the two has a
// byte of the array, so no page is touched that the array doesn't touch; what lies beside the array is read and not used.
PACELINE_DEVICE Pack read(const Bits8 *array, Bits64 at, Bits64 bytes) {
    const Bits8 *const from = array + at;
    Pack pack = {{0, 0}};
    if (bytes - at < 16) {
        for (Bits32 byte = 0; byte < (Bits32)(bytes - at); byte++) {
            const Bits64 placed = (Bits64)from[byte] << (8 * (byte & 7));
            pack.words[0] |= byte < 8 ? placed : 0;
            pack.words[1] |= byte < 8 ? 0 : placed;
        }
        return pack;
    }
    const Bits32 beyond = (Bits32)(Bits64)from & 15u;
    const Pack *const around = (const Pack *)(from - beyond);
    pack = around[0];
    if (beyond != 0) {
        const Pack next = around[1];
        const bool upper = beyond >= 8;
        const Bits64 low = upper ? pack.words[1] : pack.words[0];
        const Bits64 middle = upper ? next.words[0] : pack.words[1];
        const Bits64 high = upper ? next.words[1] : next.words[0];
        const Bits32 shift = 8 * (beyond & 7);
        pack.words[0] = joined(low, middle, shift);
        pack.words[1] = joined(middle, high, shift);
    }
    return pack;
}

template <class Bits> PACELINE_DEVICE void write_as(Bits8 *to, const Pack &pack) {
    Bits elements[16 / sizeof(Bits)];
    unpack(elements, pack);
#pragma unroll
    for (int lane = 0; lane < (int)(16 / sizeof(Bits)); lane++)
        ((Bits *)to)[lane] = elements[lane];
}

// Writes `pack` to the bytes of `array` from `at` on, as far as the array goes: a multiple of 16, and less than `bytes`.
// The array is one of elements of `Bits`, so that it begins at a multiple of their size.
template <class Bits> PACELINE_DEVICE void write(Bits8 *array, Bits64 at, Bits64 bytes, const Pack &pack) {
    Bits8 *const to = array + at;
    if (bytes - at < 16) {
        for (Bits32 byte = 0; byte < (Bits32)(bytes - at); byte++)
            to[byte] = (Bits8)((byte < 8 ? pack.words[0] : pack.words[1]) >> (8 * (byte & 7)));
        return;
    }
    const Bits32 beyond = (Bits32)(Bits64)to & 15u;
    if (beyond == 0)
        *(Pack *)to = pack;
    else if (sizeof(Bits) < 8 && beyond % 4 == 0)
        write_as<Bits32>(to, pack);
    else
        write_as<Bits>(to, pack);
}

}  // namespace paceline
