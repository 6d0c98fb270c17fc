// Fold: target[i] = sources[0][i] (op) sources[1][i] (op) ..., in this order and in one pass over memory.
//
// Where all pointers lie alike, 16 bytes are read and written at once: a few elements up to the first such address and
// after the last are done one by one. Otherwise all are. A thread reads whatever it needs for an element before it
// writes it, and no other thread touches it, so the target may be exactly one of the sources.

namespace paceline {

const Bits32 SOURCES_MAX = 16;

// What a launch is given; `Arguments` in comm/src/device/arguments.rs is the same.
struct Arguments {
    void *target;
    const void *sources[SOURCES_MAX];
    // For a scaled sum: the bits of what source i is multiplied by, if bit i of `scaled` is set.
    Bits64 factors[SOURCES_MAX];
    Bits64 elements;
    Bits32 n_sources;
    // For an average: what the sum is divided by; 0 leaves the sum.
    Bits32 ranks;
    Bits32 scaled;
    Bits32 reserved;
};

static_assert(sizeof(Arguments) == 288, "the arguments are those of the host");

struct alignas(16) Pack {
    Bits64 words[2];
};

template <class Bits, int N> PACELINE_DEVICE void load(Bits (&elements)[N], const void *array, Bits64 at) {
    const Bits *from = (const Bits *)array + at;
    if constexpr (N == 1) {
        elements[0] = *from;
    } else {
        const int per_word = 8 / sizeof(Bits);
        const Pack pack = *(const Pack *)from;
#pragma unroll
        for (int lane = 0; lane < N; lane++)
            elements[lane] = (Bits)(pack.words[lane / per_word] >> (8 * sizeof(Bits) * (lane % per_word)));
    }
}

template <class Bits, int N> PACELINE_DEVICE void store(void *array, Bits64 at, const Bits (&elements)[N]) {
    Bits *to = (Bits *)array + at;
    if constexpr (N == 1) {
        *to = elements[0];
    } else {
        const int per_word = 8 / sizeof(Bits);
        Pack pack = {{0, 0}};
#pragma unroll
        for (int lane = 0; lane < N; lane++)
            pack.words[lane / per_word] |= (Bits64)elements[lane] << (8 * sizeof(Bits) * (lane % per_word));
        *(Pack *)to = pack;
    }
}

// N elements of one source, each times the source's factor and rounded, if it has one.
template <class E, class O, int N>
PACELINE_DEVICE void operand(typename E::Bits (&elements)[N], const Arguments &arguments, Bits32 source, Bits64 at) {
    load(elements, arguments.sources[source], at);
    if constexpr (O::SCALES) {
        if ((arguments.scaled >> source) & 1u) {
            const typename E::Wide factor = E::widen((typename E::Bits)arguments.factors[source]);
#pragma unroll
            for (int lane = 0; lane < N; lane++)
                elements[lane] = E::narrow(E::mul(E::widen(elements[lane]), factor));
        }
    }
}

// N elements from `at` on. One source comes through as it is, a NaN's payload included.
template <class E, class O, int N> PACELINE_DEVICE void fold(const Arguments &arguments, Bits64 at) {
    typename E::Bits elements[N];
    operand<E, O>(elements, arguments, 0, at);
    if (arguments.n_sources > 1) {
        typename O::Carry carry[N];
#pragma unroll
        for (int lane = 0; lane < N; lane++)
            carry[lane] = O::lift(elements[lane]);
        for (Bits32 source = 1; source < arguments.n_sources; source++) {
            operand<E, O>(elements, arguments, source, at);
#pragma unroll
            for (int lane = 0; lane < N; lane++)
                carry[lane] = O::join(carry[lane], O::lift(elements[lane]));
        }
#pragma unroll
        for (int lane = 0; lane < N; lane++)
            elements[lane] = O::lower(carry[lane]);
    }
    if constexpr (O::DIVIDES) {
        if (arguments.ranks != 0) {
#pragma unroll
            for (int lane = 0; lane < N; lane++)
                elements[lane] = E::average(elements[lane], arguments.ranks);
        }
    }
    store(arguments.target, at, elements);
}

// The elements before the first 16 bytes that can be read at once: all, if the pointers don't lie alike.
template <class Bits> PACELINE_DEVICE Bits64 head(const Arguments &arguments) {
    const Bits64 target = (Bits64)arguments.target;
    for (Bits32 source = 0; source < arguments.n_sources; source++)
        if (((Bits64)arguments.sources[source] ^ target) & 15u)
            return arguments.elements;
    const Bits64 unaligned = ((0u - target) & 15u) / sizeof(Bits);
    return unaligned < arguments.elements ? unaligned : arguments.elements;
}

template <class E, class O> PACELINE_DEVICE void fold_all(const Arguments &arguments) {
    const int per_pack = 16 / sizeof(typename E::Bits);
    const Bits64 thread = (Bits64)blockIdx.x * blockDim.x + threadIdx.x;
    const Bits64 threads = (Bits64)gridDim.x * blockDim.x;
    const Bits64 before = head<typename E::Bits>(arguments);
    const Bits64 packs = (arguments.elements - before) / per_pack;
    const Bits64 singles = arguments.elements - packs * per_pack;
    for (Bits64 pack = thread; pack < packs; pack += threads)
        fold<E, O, per_pack>(arguments, before + pack * per_pack);
    for (Bits64 single = thread; single < singles; single += threads)
        fold<E, O, 1>(arguments, single < before ? single : single + packs * per_pack);
}

}  // namespace paceline
