// Collectives between ranks that can read each other's boards: fold, fold and gather, and copy.
//
// In every turn a block copies its share of what it brings to its cells, meets the same block of the other ranks, and reads
// their cells. Reductions fold in the order of the ranks, whoever does it, so that all ranks hold equal bits.

namespace paceline {

// Packs `index` of a job, all threads together, four of each at a time so that four loads are under way.
template <class Job> PACELINE_DEVICE void do_all(const Job &job, Bits32 packs) {
    const int BATCH = 4;
    for (Bits32 from = threadIdx.x; from < packs; from += BATCH * blockDim.x) {
        Pack held[BATCH];
        bool there[BATCH];
#pragma unroll
        for (int turn = 0; turn < BATCH; turn++) {
            const Bits32 index = from + turn * blockDim.x;
            there[turn] = index < packs && job.read(index, held[turn]);
        }
#pragma unroll
        for (int turn = 0; turn < BATCH; turn++)
            if (there[turn])
                job.write(from + turn * blockDim.x, held[turn]);
    }
}

// This rank's share of each of its pieces, to its cells; scaled, if the operator scales.
template <class E, class O> struct Publish {
    const Lane &lane;
    const Bits32 turn;
    const Bits32 packs;

    PACELINE_INLINE bool read(Bits32 index, Pack &pack) const {
        const Bits32 piece = index / packs;
        const Bits64 at = lane.share(turn) + index % packs * 16ull;
        const Bits64 bytes = lane.given.outgoing[piece];
        if (at >= bytes)
            return false;
        pack = paceline::read(lane.given.sources[piece], at, bytes);
        return true;
    }

    PACELINE_INLINE void write(Bits32 index, const Pack &pack) const {
        lane.cell(lane.given.rank, lane.step(turn), 0)[index] = scaled(pack, lane.given.factor);
    }

    PACELINE_DEVICE Pack scaled(const Pack &pack, Bits64 factor) {
        if constexpr (O::SCALES) {
            typename E::Bits elements[16 / sizeof(typename E::Bits)];
            unpack(elements, pack);
            scale<E>(elements, factor);
            return packed(elements);
        } else {
            return pack;
        }
    }
};

// The same of a vector that is cut into as many parts as there are ranks, share by share: the pieces follow each other.
template <class E, class O> struct PublishParts {
    const Lane &lane;
    const Bits32 turn;

    PACELINE_DEVICE Bits64 share(const Lane &lane, Bits32 turn) { return lane.share(turn) * lane.given.ranks; }

    PACELINE_INLINE bool read(Bits32 index, Pack &pack) const {
        const Bits64 at = share(lane, turn) + index * 16ull;
        if (at >= lane.given.outgoing[0])
            return false;
        pack = paceline::read(lane.given.sources[0], at, lane.given.outgoing[0]);
        return true;
    }

    PACELINE_INLINE void write(Bits32 index, const Pack &pack) const {
        lane.cell(lane.given.rank, lane.step(turn), 0)[index] = Publish<E, O>::scaled(pack, lane.given.factor);
    }
};

// What each rank has for this one, to where it belongs; from the next rank on, so that not all read the same one first.
template <class Bits> struct Pull {
    const Lane &lane;
    const Bits32 turn;
    const Bits32 packs;

    PACELINE_INLINE Bits32 peer(Bits32 index) const { return (lane.given.rank + 1 + index / packs) % lane.given.ranks; }
    PACELINE_INLINE Bits64 at(Bits32 index) const { return lane.share(turn) + index % packs * 16ull; }

    PACELINE_INLINE bool read(Bits32 index, Pack &pack) const {
        const Bits32 from = peer(index);
        if (at(index) >= lane.given.incoming[from])
            return false;
        pack = lane.cell(from, lane.step(turn), lane.given.piece)[index % packs];
        return true;
    }

    PACELINE_INLINE void write(Bits32 index, const Pack &pack) const {
        const Bits32 from = peer(index);
        paceline::write<Bits>(lane.given.targets[from], at(index), lane.given.incoming[from], pack);
    }
};

// What each other rank has folded in the turn before, to its part of this rank's vector.
template <class Bits> struct PullParts {
    const Lane &lane;
    const Bits32 turn;
    const Bits32 packs;

    PACELINE_INLINE Bits32 peer(Bits32 index) const { return (lane.given.rank + 1 + index / packs) % lane.given.ranks; }
    PACELINE_INLINE Bits64 at(Bits32 index) const {
        const Bits64 part = (Bits64)peer(index) * lane.given.span;
        return lane.share(turn - 1) * lane.given.ranks + part + index % packs * 16ull;
    }

    PACELINE_INLINE bool read(Bits32 index, Pack &pack) const {
        if (at(index) >= lane.given.incoming[0])
            return false;
        pack = lane.cell(peer(index), lane.step(turn), lane.given.ranks)[index % packs];
        return true;
    }

    PACELINE_INLINE void write(Bits32 index, const Pack &pack) const {
        paceline::write<Bits>(lane.given.targets[0], at(index), lane.given.incoming[0], pack);
    }
};

// One pack of the cells of one rank after the other. As many as have room in registers are asked for at once: a peer's
// memory is far away.
template <class E> struct Cells {
    static const int AHEAD = 8;
    const Lane &lane;
    const Bits32 step;
    const Bits32 index;
    Bits32 taken;
    Pack ahead[AHEAD];

    PACELINE_INLINE Cells(const Lane &lane, Bits32 step, Bits32 index) : lane(lane), step(step), index(index), taken(0) {
        fetch();
    }

    template <int N> PACELINE_INLINE void take(typename E::Bits (&elements)[N]) {
        if (taken == AHEAD)
            fetch();
        unpack(elements, ahead[0]);
#pragma unroll
        for (int next = 1; next < AHEAD; next++)
            ahead[next - 1] = ahead[next];
        taken++;
    }

  private:
    PACELINE_INLINE void fetch() {
        const PeerArguments &given = lane.given;
#pragma unroll
        for (int next = 0; next < AHEAD; next++)
            if (taken + next < given.n_sources)
                ahead[next] = lane.cell(given.first + taken + next, step, given.piece)[index];
    }
};

static_assert(RANKS_MAX <= 2 * Cells<U8>::AHEAD, "cells are fetched twice at most");

template <class E, class O> PACELINE_DEVICE Pack folded(const Lane &lane, Bits32 step, Bits32 index) {
    typename E::Bits elements[16 / sizeof(typename E::Bits)];
    Cells<E> cells(lane, step, index);
    fold<E, O>(elements, cells, lane.given.n_sources, lane.given.divisor);
    return packed(elements);
}

// Every rank folds the pieces that are for it: all_reduce in one shot, reduce, reduce_scatter.
struct Fold {
    typedef PeerArguments Given;

    template <class E, class O> PACELINE_DEVICE void run(const PeerArguments &given) {
        Lane lane(given);
        run<E, O>(lane);
    }

    template <class E, class O> PACELINE_DEVICE void run(Lane &lane) {
        const PeerArguments &given = lane.given;
        const Bits32 packs = given.span / 16;
        for (Bits32 turn = 0; turn < given.steps; turn++) {
            do_all(Publish<E, O>{lane, turn, packs}, given.pieces * packs);
            if (!lane.meet(turn))
                break;
            const Bits64 share = lane.share(turn), bytes = given.incoming[0];
            for (Bits32 pack = threadIdx.x; pack < packs && share + pack * 16ull < bytes; pack += blockDim.x)
                write<typename E::Bits>(given.targets[0], share + pack * 16ull, bytes,
                                        folded<E, O>(lane, lane.step(turn), pack));
        }
        lane.leave(given.steps);
    }
};

// Every rank folds its part of the vector, and in the next turn, which already brings the next parts, gathers those of the
// others: all_reduce in two shots. The last turn only gathers. reduce and broadcast have one source or one target.
struct TwoShot {
    typedef PeerArguments Given;

    template <class E, class O> PACELINE_DEVICE void run(const PeerArguments &given) {
        Lane lane(given);
        run<E, O>(lane);
    }

    template <class E, class O> PACELINE_DEVICE void run(Lane &lane) {
        const PeerArguments &given = lane.given;
        const Bits32 packs = given.span / 16;
        for (Bits32 turn = 0; turn < given.steps; turn++) {
            const bool brings = turn + 1 < given.steps;
            if (brings)
                do_all(PublishParts<E, O>{lane, turn}, given.ranks * packs);
            if (!lane.meet(turn))
                break;
            if (brings)
                fold_part<E, O>(lane, turn, packs);
            if (turn > 0)
                do_all(PullParts<typename E::Bits>{lane, turn, packs}, (given.ranks - 1) * packs);
        }
        lane.leave(given.steps);
    }

  private:
    // The result goes to this rank's own vector, and to where it is published in the next turn.
    template <class E, class O> PACELINE_DEVICE void fold_part(const Lane &lane, Bits32 turn, Bits32 packs) {
        const PeerArguments &given = lane.given;
        const Bits64 share = lane.share(turn) * given.ranks + (Bits64)given.rank * given.span;
        Pack *const result = lane.cell(given.rank, lane.step(turn + 1), given.ranks);
        for (Bits32 pack = threadIdx.x; pack < packs && share + pack * 16ull < given.whole; pack += blockDim.x) {
            const Bits64 at = share + pack * 16ull;
            const Pack whole = folded<E, O>(lane, lane.step(turn), pack);
            result[pack] = whole;
            if (at < given.incoming[0])
                write<typename E::Bits>(given.targets[0], at, given.incoming[0], whole);
        }
    }
};

// Every rank copies the pieces that are for it: all_gather, all_to_all, broadcast, gather, scatter, and a barrier of
// nothing at all. Elements are bytes.
struct Copy {
    typedef PeerArguments Given;

    template <class E, class O> PACELINE_DEVICE void run(const PeerArguments &given) {
        Lane lane(given);
        run<E, O>(lane);
    }

    template <class E, class O> PACELINE_DEVICE void run(Lane &lane) {
        const PeerArguments &given = lane.given;
        const Bits32 packs = given.span / 16;
        for (Bits32 turn = 0; turn < given.steps; turn++) {
            do_all(Publish<E, O>{lane, turn, packs}, given.pieces * packs);
            if (!lane.meet(turn))
                break;
            do_all(Pull<typename E::Bits>{lane, turn, packs}, given.ranks * packs);
        }
        lane.leave(given.steps);
    }
};

}  // namespace paceline
