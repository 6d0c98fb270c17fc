// Collectives that read the ranks' own arrays where they lie, instead of cells: if all ranks have lent theirs.
//
// Whether they have is said at a first meeting, so nobody has to promise it; if one has not, all go on by the cells. README.md,
// "lent arrays", has the protocol.

namespace paceline {

// How many pieces of memory a rank may lend at a time.
const Bits32 WINDOWS_MAX = 16;

// `LentArguments` in comm/src/device/lent.rs is the same.
struct LentArguments {
    PeerArguments given;
    // Where this rank reaches what each rank has lent.
    const Bits8 *windows[WINDOWS_MAX][RANKS_MAX];
    // Where this rank's input and output lie: the window's number, from 1 on, above 48 bits of place; 0 where in none.
    Bits64 input;
    Bits64 output;
    // Where what this rank reads begins in everybody's input.
    Bits64 piece_at;
    Bits64 reserved;
};

static_assert(sizeof(LentArguments) == 864 + 8 * 16 * 16 + 32, "the arguments are those of the host");

// What all ranks have lent, for all threads of a block.
struct Lending {
    const Bits8 *inputs[RANKS_MAX];
    const Bits8 *outputs[RANKS_MAX];
    Bits64 factors[RANKS_MAX];
};

enum Answer { ENDS, SOME_LENT, ALL_LENT };

// The first meeting: each rank says what it lends, and finds what the others do. All ranks are answered the same.
PACELINE_DEVICE Answer ask(Lane &lane, const LentArguments &lent, bool with_outputs, Lending &lending) {
    const PeerArguments &given = lane.given;
    const Bits32 peer = threadIdx.x;
    if (peer == 0) {
        Offer &offer = given.boards[given.rank]->offers[blockIdx.x];
        offer.input = lent.input;
        offer.output = lent.output;
        offer.factor = given.factor;
    }
    if (!lane.meet(0))
        return ENDS;
    bool has = true;
    if (peer < given.ranks) {
        const Offer offer = given.boards[peer]->offers[blockIdx.x];
        const Bits64 place = (1ull << 48) - 1;
        has = offer.input != 0 && (!with_outputs || offer.output != 0);
        if (has) {
            lending.inputs[peer] = lent.windows[(offer.input >> 48) - 1][peer] + (offer.input & place);
            if (with_outputs)
                lending.outputs[peer] = lent.windows[(offer.output >> 48) - 1][peer] + (offer.output & place);
            lending.factors[peer] = offer.factor;
        }
    }
    return __syncthreads_and(has) ? ALL_LENT : SOME_LENT;
}

// One pack of the inputs of one rank after the other, each times its factor and rounded, if the operator scales.
template <class E, class O> struct Inputs {
    static const int AHEAD = Cells<E>::AHEAD;
    const Lending &lending;
    const Bits64 from, at, bytes;
    const Bits32 ranks;
    Bits32 taken;
    Pack ahead[AHEAD];

    PACELINE_INLINE Inputs(const Lending &lending, Bits64 from, Bits64 at, Bits64 bytes, Bits32 ranks)
        : lending(lending), from(from), at(at), bytes(bytes), ranks(ranks), taken(0) {
        fetch();
    }

    template <int N> PACELINE_INLINE void take(typename E::Bits (&elements)[N]) {
        if (taken == AHEAD)
            fetch();
        unpack(elements, ahead[0]);
#pragma unroll
        for (int next = 1; next < AHEAD; next++)
            ahead[next - 1] = ahead[next];
        if constexpr (O::SCALES)
            scale<E>(elements, lending.factors[taken]);
        taken++;
    }

  private:
    PACELINE_INLINE void fetch() {
#pragma unroll
        for (int next = 0; next < AHEAD; next++)
            if (taken + next < ranks)
                ahead[next] = read(lending.inputs[taken + next] + from, at, bytes);
    }
};

template <class E, class O>
PACELINE_DEVICE Pack folded(const Lane &lane, const Lending &lending, Bits64 from, Bits64 at, Bits64 bytes) {
    typename E::Bits elements[16 / sizeof(typename E::Bits)];
    Inputs<E, O> inputs(lending, from, at, bytes, lane.given.ranks);
    fold<E, O>(elements, inputs, lane.given.n_sources, lane.given.divisor);
    return packed(elements);
}

// reduce_scatter: every rank folds what is for it in all inputs.
struct FoldLent {
    typedef LentArguments Given;

    template <class E, class O> PACELINE_DEVICE void run(const LentArguments &lent) {
        __shared__ Lending lending;
        const PeerArguments &given = lent.given;
        Lane lane(given);
        const Answer answer = ask(lane, lent, false, lending);
        if (answer == SOME_LENT) {
            lane.go_on();
            return Fold::run<E, O>(lane);
        }
        const Bits32 packs = given.span / 16;
        const Bits64 bytes = given.incoming[0];
        for (Bits32 turn = 0; answer == ALL_LENT && turn < given.steps; turn++) {
            const Bits64 share = lane.share(turn);
            for (Bits32 pack = threadIdx.x; pack < packs && share + pack * 16ull < bytes; pack += blockDim.x) {
                const Bits64 at = share + pack * 16ull;
                write<typename E::Bits>(given.targets[0], at, bytes, folded<E, O>(lane, lending, lent.piece_at, at, bytes));
            }
        }
        // Nobody's stream goes on before all have read.
        if (answer == ALL_LENT)
            lane.meet(1);
        lane.leave(2);
    }
};

// all_reduce: every rank folds its part of all inputs into its output, and gathers the parts of the others from theirs. In place
// is possible: a rank writes nothing in the first half that another reads there.
struct TwoShotLent {
    typedef LentArguments Given;

    template <class E, class O> PACELINE_DEVICE void run(const LentArguments &lent) {
        __shared__ Lending lending;
        const PeerArguments &given = lent.given;
        Lane lane(given);
        const Answer answer = ask(lane, lent, true, lending);
        if (answer == SOME_LENT) {
            lane.go_on();
            return TwoShot::run<E, O>(lane);
        }
        const Bits32 packs = given.span / 16;
        for (Bits32 turn = 0; answer == ALL_LENT && turn + 1 < given.steps; turn++) {
            const Bits64 share = lane.share(turn) * given.ranks + (Bits64)given.rank * given.span;
            for (Bits32 pack = threadIdx.x; pack < packs && share + pack * 16ull < given.whole; pack += blockDim.x) {
                const Bits64 at = share + pack * 16ull;
                write<typename E::Bits>(given.targets[0], at, given.whole,
                                        folded<E, O>(lane, lending, 0, at, given.whole));
            }
        }
        if (answer == ALL_LENT && lane.meet(1)) {
            for (Bits32 turn = 1; turn < given.steps; turn++)
                do_all(PullLentParts<typename E::Bits>{{lane, turn, packs}, lending}, (given.ranks - 1) * packs);
            lane.meet(2);
        }
        lane.leave(3);
    }

  private:
    // What each other rank has folded, to its part of this rank's vector.
    template <class Bits> struct PullLentParts {
        const PullParts<Bits> parts;
        const Lending &lending;

        PACELINE_INLINE bool read(Bits32 index, Pack &pack) const {
            const Bits64 at = parts.at(index), bytes = parts.lane.given.whole;
            if (at >= bytes)
                return false;
            pack = paceline::read(lending.outputs[parts.peer(index)], at, bytes);
            return true;
        }

        PACELINE_INLINE void write(Bits32 index, const Pack &pack) const { parts.write(index, pack); }
    };
};

// all_gather, all_to_all: every rank copies what is for it in each input.
struct CopyLent {
    typedef LentArguments Given;

    template <class E, class O> PACELINE_DEVICE void run(const LentArguments &lent) {
        __shared__ Lending lending;
        const PeerArguments &given = lent.given;
        Lane lane(given);
        const Answer answer = ask(lane, lent, false, lending);
        if (answer == SOME_LENT) {
            lane.go_on();
            return Copy::run<E, O>(lane);
        }
        const Bits32 packs = given.span / 16;
        for (Bits32 turn = 0; answer == ALL_LENT && turn < given.steps; turn++)
            do_all(PullLent<typename E::Bits>{{lane, turn, packs}, lending, lent.piece_at}, given.ranks * packs);
        if (answer == ALL_LENT)
            lane.meet(1);
        lane.leave(2);
    }

  private:
    template <class Bits> struct PullLent {
        const Pull<Bits> pull;
        const Lending &lending;
        const Bits64 piece_at;

        PACELINE_INLINE bool read(Bits32 index, Pack &pack) const {
            const Bits32 from = pull.peer(index);
            const Bits64 at = pull.at(index), bytes = pull.lane.given.incoming[from];
            if (at >= bytes)
                return false;
            pack = paceline::read(lending.inputs[from] + piece_at, at, bytes);
            return true;
        }

        PACELINE_INLINE void write(Bits32 index, const Pack &pack) const { pull.write(index, pack); }
    };
};

}  // namespace paceline
