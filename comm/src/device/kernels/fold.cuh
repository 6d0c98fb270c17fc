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

// elements *= the number whose bits are the low ones of `factor`, and rounded.
template <class E, int N> PACELINE_DEVICE void scale(typename E::Bits (&elements)[N], Bits64 factor) {
    const typename E::Wide wide = E::widen((typename E::Bits)factor);
#pragma unroll
    for (int lane = 0; lane < N; lane++)
        elements[lane] = E::narrow(E::mul(E::widen(elements[lane]), wide));
}

// elements = source 0 (op) source 1 (op) ..., divided by `ranks` for an average unless that is 0. `take(elements)` of
// `sources` gives the elements of one source after the other. One source comes through as it is, a NaN's payload
// included.
template <class E, class O, int N, class Sources>
PACELINE_DEVICE void fold(typename E::Bits (&elements)[N], Sources &sources, Bits32 n_sources, Bits32 ranks) {
    sources.take(elements);
    if (n_sources > 1) {
        typename O::Carry carry[N];
#pragma unroll
        for (int lane = 0; lane < N; lane++)
            carry[lane] = O::lift(elements[lane]);
#pragma unroll 1
        for (Bits32 source = 1; source < n_sources; source++) {
            sources.take(elements);
#pragma unroll
            for (int lane = 0; lane < N; lane++)
                carry[lane] = O::join(carry[lane], O::lift(elements[lane]));
        }
#pragma unroll
        for (int lane = 0; lane < N; lane++)
            elements[lane] = O::lower(carry[lane]);
    }
    if constexpr (O::DIVIDES) {
        if (ranks != 0) {
#pragma unroll
            for (int lane = 0; lane < N; lane++)
                elements[lane] = E::average(elements[lane], ranks);
        }
    }
}

// N elements from `at` on of one array after the other, each times its factor and rounded, if it has one.
template <class E, class O> struct Arrays {
    const Arguments &given;
    const Bits64 at;
    Bits32 source;

    template <int N> PACELINE_INLINE void take(typename E::Bits (&elements)[N]) {
        const typename E::Bits *const from = (const typename E::Bits *)given.sources[source] + at;
        if constexpr (N == 1) {
            elements[0] = *from;
        } else {
            const Pack pack = *(const Pack *)from;
            unpack(elements, pack);
        }
        if constexpr (O::SCALES) {
            if ((given.scaled >> source) & 1u)
                scale<E>(elements, given.factors[source]);
        }
        source++;
    }
};

template <class E, class O, int N> PACELINE_DEVICE void fold_at(const Arguments &given, Bits64 at) {
    typename E::Bits elements[N];
    Arrays<E, O> arrays = {given, at, 0};
    fold<E, O>(elements, arrays, given.n_sources, given.ranks);
    typename E::Bits *const to = (typename E::Bits *)given.target + at;
    if constexpr (N == 1)
        *to = elements[0];
    else
        *(Pack *)to = packed(elements);
}

// The elements before the first 16 bytes that can be read at once: all, if the pointers don't lie alike.
template <class Bits> PACELINE_DEVICE Bits64 head(const Arguments &given) {
    const Bits64 target = (Bits64)given.target;
    for (Bits32 source = 0; source < given.n_sources; source++)
        if (((Bits64)given.sources[source] ^ target) & 15u)
            return given.elements;
    const Bits64 unaligned = ((0u - target) & 15u) / sizeof(Bits);
    return unaligned < given.elements ? unaligned : given.elements;
}

// The kernel that folds arrays that this GPU can read, without a word to anybody.
struct Reduce {
    typedef Arguments Given;

    template <class E, class O> PACELINE_DEVICE void run(const Arguments &given) {
        const int per_pack = 16 / sizeof(typename E::Bits);
        const Bits64 thread = (Bits64)blockIdx.x * blockDim.x + threadIdx.x;
        const Bits64 threads = (Bits64)gridDim.x * blockDim.x;
        const Bits64 before = head<typename E::Bits>(given);
        const Bits64 packs = (given.elements - before) / per_pack;
        const Bits64 singles = given.elements - packs * per_pack;
        for (Bits64 pack = thread; pack < packs; pack += threads)
            fold_at<E, O, per_pack>(given, before + pack * per_pack);
        for (Bits64 single = thread; single < singles; single += threads)
            fold_at<E, O, 1>(given, single < before ? single : single + packs * per_pack);
    }
};

}  // namespace paceline
