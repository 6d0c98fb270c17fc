// Elements: how each of the twelve types is read, computed with and written back.
//
// No header is included, so that NVRTC needs nothing but this text. Conversions are integer arithmetic of our own rather
// than CUDA's, so that every architecture, and the host's compiler in tests, gives the bits of comm/src/reduce.
//
// An element type has `Bits` (as it lies in memory), `Wide` (what is added and multiplied) and `Key` (what is compared):
// a signed number, or an unsigned one for unsigned integers, with the elements' order.

#define PACELINE_INLINE __device__ __forceinline__
#define PACELINE_DEVICE PACELINE_INLINE static

namespace paceline {

typedef unsigned char Bits8;
typedef unsigned short Bits16;
typedef unsigned int Bits32;
typedef unsigned long long Bits64;

// Integers wrap: they are computed in an unsigned type, and their upper bits are cut off.
template <class B, class W, class K> struct Integer {
    typedef B Bits;
    typedef W Wide;
    typedef K Key;

    PACELINE_DEVICE W widen(B bits) { return bits; }
    PACELINE_DEVICE B narrow(W wide) { return (B)wide; }
    PACELINE_DEVICE W add(W a, W b) { return a + b; }
    PACELINE_DEVICE W mul(W a, W b) { return a * b; }

    PACELINE_DEVICE K key(B bits) { return (K)bits; }
    PACELINE_DEVICE B bits(K key) { return (B)key; }
    PACELINE_DEVICE K min(K a, K b) { return a < b ? a : b; }
    PACELINE_DEVICE K max(K a, K b) { return a > b ? a : b; }

    // Rounded towards zero. The magnitude is divided: every number of ranks has room in `Wide`, but not in `Key`.
    PACELINE_DEVICE B average(B bits, Bits32 ranks) {
        const bool negative = (K)bits < (K)0;
        const W wide = (W)(K)bits;
        const W quotient = (negative ? (W)0 - wide : wide) / (W)ranks;
        return (B)(negative ? (W)0 - quotient : quotient);
    }
};

typedef Integer<Bits8, Bits32, signed char> I8;
typedef Integer<Bits8, Bits32, unsigned char> U8;
typedef Integer<Bits32, Bits32, int> I32;
typedef Integer<Bits32, Bits32, unsigned int> U32;
typedef Integer<Bits64, Bits64, long long> I64;
typedef Integer<Bits64, Bits64, unsigned long long> U64;

// The order of floats, whatever their layout: a sign and a magnitude become a signed number by turning round the
// magnitude of what is negative, so that -0 is less than +0. What lies beyond an infinity of either sign is a NaN, and
// wins. `INFINITE` is the greatest magnitude that is no NaN, `QUIET` the canonical NaN.
template <class B, class K, K INFINITE, K QUIET> struct FloatOrder {
    typedef B Bits;
    typedef K Key;

    PACELINE_DEVICE K turned(K key) {
        const K magnitude = (K)((B)~(B)0 >> 1);
        return (K)(key ^ ((key >> (8 * sizeof(K) - 1)) & magnitude));
    }
    PACELINE_DEVICE K key(B bits) { return turned((K)bits); }
    PACELINE_DEVICE B bits(K key) { return (B)turned(key); }
    PACELINE_DEVICE bool is_nan(K key) { return key > INFINITE || key < (K)~INFINITE; }
    PACELINE_DEVICE K min(K a, K b) { return is_nan(a) || is_nan(b) ? QUIET : a < b ? a : b; }
    PACELINE_DEVICE K max(K a, K b) { return is_nan(a) || is_nan(b) ? QUIET : a > b ? a : b; }
};

// Arithmetic of floats, and their average, which rounds the quotient once more.
template <class Format, class W> struct FloatArithmetic {
    typedef W Wide;

    PACELINE_DEVICE W add(W a, W b) { return a + b; }
    PACELINE_DEVICE W mul(W a, W b) { return a * b; }
    template <class B> PACELINE_DEVICE B average(B bits, Bits32 ranks) {
        return Format::narrow(Format::widen(bits) / (W)ranks);
    }
};

const Bits32 SINGLE_MAGNITUDE = 0x7fffffffu;
const Bits32 SINGLE_INFINITY = 0x7f800000u;
const Bits32 SINGLE_NAN = 0x7fc00000u;

struct F32 : FloatOrder<Bits32, int, 0x7f800000, 0x7fc00000>, FloatArithmetic<F32, float> {
    PACELINE_DEVICE float widen(Bits32 bits) { return __uint_as_float(bits); }
    PACELINE_DEVICE Bits32 narrow(float wide) {
        const Bits32 bits = __float_as_uint(wide);
        return (bits & SINGLE_MAGNITUDE) > SINGLE_INFINITY ? SINGLE_NAN : bits;
    }
};

struct F64 : FloatOrder<Bits64, long long, 0x7ff0000000000000ll, 0x7ff8000000000000ll>, FloatArithmetic<F64, double> {
    PACELINE_DEVICE double widen(Bits64 bits) { return __longlong_as_double((long long)bits); }
    PACELINE_DEVICE Bits64 narrow(double wide) {
        const Bits64 bits = (Bits64)__double_as_longlong(wide);
        const Bits64 magnitude = bits & 0x7fffffffffffffffull;
        return magnitude > 0x7ff0000000000000ull ? 0x7ff8000000000000ull : bits;
    }
};

// number / 2^shift to the nearest whole number, ties to even, for shifts from 1 to 31.
PACELINE_DEVICE Bits32 rounded(Bits32 number, Bits32 shift) {
    return (number + ((1u << (shift - 1)) - 1u) + ((number >> shift) & 1u)) >> shift;
}

// The top half of an f32.
struct Bf16 : FloatOrder<Bits16, short, 0x7f80, 0x7fc0>, FloatArithmetic<Bf16, float> {
    PACELINE_DEVICE float widen(Bits16 bits) { return __uint_as_float((Bits32)bits << 16); }
    PACELINE_DEVICE Bits16 narrow(float wide) {
        const Bits32 bits = __float_as_uint(wide);
        return (Bits16)((bits & SINGLE_MAGNITUDE) > SINGLE_INFINITY ? 0x7fc0u : rounded(bits, 16));
    }
};

// What is known of a narrow float. `LIMIT` is the f32 that finite numbers are cut to before they are rounded: for f16
// 65536, whose bits are those of the infinity; the 8-bit floats saturate at their largest number.
struct HalfLayout {
    typedef Bits16 Bits;
    static const Bits32 MANTISSA = 10, BIAS = 15, QUIET = 0x7e00, NAN_FIRST = 0x7c01, INFINITE = 0x7c00;
    static const bool HAS_INFINITY = true;
    static const Bits32 LIMIT = 0x47800000u;
};

struct E4m3Layout {
    typedef Bits8 Bits;
    static const Bits32 MANTISSA = 3, BIAS = 7, QUIET = 0x7f, NAN_FIRST = 0x7f, INFINITE = 0x7f;
    static const bool HAS_INFINITY = false;
    static const Bits32 LIMIT = 0x43e00000u;
};

struct E5m2Layout {
    typedef Bits8 Bits;
    static const Bits32 MANTISSA = 2, BIAS = 15, QUIET = 0x7e, NAN_FIRST = 0x7d, INFINITE = 0x7c;
    static const bool HAS_INFINITY = true;
    static const Bits32 LIMIT = 0x47600000u;
};

template <class L> struct NarrowFormat {
    typedef typename L::Bits Bits;
    static const Bits32 SIGN_PLACE = 8 * sizeof(Bits) - 1;
    static const Bits32 MAGNITUDE = (1u << SIGN_PLACE) - 1u;
    // The bits of an f32's mantissa that the narrow float has not.
    static const Bits32 SHIFT = 23 - L::MANTISSA;
    // The f32 exponent of the smallest normal number.
    static const Bits32 NORMAL = 127 - L::BIAS + 1;

    PACELINE_DEVICE float widen(Bits bits) {
        const Bits32 magnitude = bits & MAGNITUDE;
        const Bits32 sign = (Bits32)(bits >> SIGN_PLACE) << 31;
        // The worth of a subnormal's last bit; the product is exact.
        const float last = __uint_as_float((NORMAL - L::MANTISSA) << 23);
        const Bits32 subnormal = __float_as_uint((float)(int)magnitude * last);
        const Bits32 normal = (magnitude << SHIFT) + ((NORMAL - 1u) << 23);
        Bits32 wide = magnitude < (1u << L::MANTISSA) ? subnormal : normal;
        if (L::HAS_INFINITY && magnitude == L::INFINITE)
            wide = SINGLE_INFINITY;
        return __uint_as_float(magnitude >= L::NAN_FIRST ? SINGLE_NAN : wide | sign);
    }

    PACELINE_DEVICE Bits narrow(float wide) {
        const Bits32 bits = __float_as_uint(wide);
        const Bits32 magnitude = bits & SINGLE_MAGNITUDE;
        const Bits32 sign = (bits >> 31) << SIGN_PLACE;
        const Bits32 limit = L::LIMIT;
        const Bits32 cut = magnitude < limit ? magnitude : limit;
        const Bits32 exponent = cut >> 23;
        Bits32 number;
        if (exponent >= NORMAL) {
            number = rounded(cut - ((NORMAL - 1u) << 23), SHIFT);
        } else {
            // What is shifted out beyond the leading bit is less than half of the last bit.
            const Bits32 shift = SHIFT + NORMAL - exponent;
            number = shift > 24 ? 0u : rounded((cut & 0x7fffffu) | 0x800000u, shift);
        }
        if (L::HAS_INFINITY && magnitude == SINGLE_INFINITY)
            number = L::INFINITE;
        return (Bits)(magnitude > SINGLE_INFINITY ? (Bits32)L::QUIET : number | sign);
    }
};

struct F16 : FloatOrder<Bits16, short, 0x7c00, 0x7e00>, FloatArithmetic<F16, float> {
    PACELINE_DEVICE float widen(Bits16 bits) { return NarrowFormat<HalfLayout>::widen(bits); }
    PACELINE_DEVICE Bits16 narrow(float wide) { return NarrowFormat<HalfLayout>::narrow(wide); }
};

struct F8E4M3 : FloatOrder<Bits8, signed char, 0x7e, 0x7f>, FloatArithmetic<F8E4M3, float> {
    PACELINE_DEVICE float widen(Bits8 bits) { return NarrowFormat<E4m3Layout>::widen(bits); }
    PACELINE_DEVICE Bits8 narrow(float wide) { return NarrowFormat<E4m3Layout>::narrow(wide); }
};

struct F8E5M2 : FloatOrder<Bits8, signed char, 0x7c, 0x7e>, FloatArithmetic<F8E5M2, float> {
    PACELINE_DEVICE float widen(Bits8 bits) { return NarrowFormat<E5m2Layout>::widen(bits); }
    PACELINE_DEVICE Bits8 narrow(float wide) { return NarrowFormat<E5m2Layout>::narrow(wide); }
};

}  // namespace paceline
