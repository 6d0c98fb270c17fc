// Operators: what is carried from one source to the next, and what happens before the first and after the last.
//
// A result is written once, so narrow floats round once. Averages and scaled sums round where the host does: a scaled
// element before it is added, a sum before it is divided.

namespace paceline {

template <class E> struct Sum {
    typedef typename E::Wide Carry;
    static const bool SCALES = false;
    static const bool DIVIDES = false;

    PACELINE_DEVICE Carry lift(typename E::Bits bits) { return E::widen(bits); }
    PACELINE_DEVICE Carry join(Carry a, Carry b) { return E::add(a, b); }
    PACELINE_DEVICE typename E::Bits lower(Carry carry) { return E::narrow(carry); }
};

template <class E> struct Prod : Sum<E> {
    typedef typename E::Wide Carry;

    PACELINE_DEVICE Carry join(Carry a, Carry b) { return E::mul(a, b); }
};

template <class E> struct Avg : Sum<E> {
    static const bool DIVIDES = true;
};

template <class E> struct PreMulSum : Sum<E> {
    static const bool SCALES = true;
};

template <class E> struct Min {
    typedef typename E::Key Carry;
    static const bool SCALES = false;
    static const bool DIVIDES = false;

    PACELINE_DEVICE Carry lift(typename E::Bits bits) { return E::key(bits); }
    PACELINE_DEVICE Carry join(Carry a, Carry b) { return E::min(a, b); }
    PACELINE_DEVICE typename E::Bits lower(Carry carry) { return E::bits(carry); }
};

template <class E> struct Max : Min<E> {
    typedef typename E::Key Carry;

    PACELINE_DEVICE Carry join(Carry a, Carry b) { return E::max(a, b); }
};

}  // namespace paceline
