// Boards: what a rank lends its peers, and how the same block of all ranks meets. README.md has the protocol and why it holds.

namespace paceline {

const Bits32 RANKS_MAX = 16;
const Bits32 BLOCKS_MAX = 64;
// How many blocks may move one message, and how many chunks of it may lie in each block's slots.
const Bits32 LANES_MAX = 32;
const Bits32 SLOTS = 2;

// What a rank lends the others in a launch, as one of its blocks says it: see `LentArguments`.
struct Offer {
    Bits64 input;
    Bits64 output;
    Bits64 factor;
    Bits64 reserved;
};

// The head of a board; the cells, the slots and the bay follow. `Board` in comm/src/device/board.rs knows the same places. All zeros is a
// new one.
struct Board {
    // The last step of the launches that have ended.
    Bits32 step;
    // Whether a launch has failed. The one who makes it 1 writes the status.
    Bits32 failed;
    // How many blocks of the present launch have ended.
    Bits32 ended;
    Bits32 reserved[61];
    // What each peer has come to, written by that peer only: its step above, the digest of its call below.
    Bits64 arrived[BLOCKS_MAX][RANKS_MAX];
    // What each peer has put into its slots for this rank, written by that peer only: a chunk's number and its message's label.
    Bits64 posted[LANES_MAX][RANKS_MAX][SLOTS];
    // How many chunks each peer has taken from this rank's slots, written by that peer only.
    Bits64 taken[LANES_MAX][RANKS_MAX];
    // How many chunks have gone to each peer and have come from it in the launches that have ended.
    Bits32 sent[LANES_MAX][RANKS_MAX];
    Bits32 received[LANES_MAX][RANKS_MAX];
    // What this rank lends in the present launch, written by its own block of that number.
    Offer offers[BLOCKS_MAX];
    // How many messages of the present call each peer has put into this rank's bay, and has taken from its own of those that this
    // rank has put there, written by that peer only: the step of the call's first meeting above, the number below.
    Bits64 filled[RANKS_MAX];
    Bits64 emptied[RANKS_MAX];
};

static_assert(sizeof(Board) == 106 * 256, "the board is that of the host");

// What failed first, in memory of the host; `Failure` in comm/src/device/failure.rs reads it.
struct Status {
    // The reason, which is written last; above it the peer that was waited for.
    Bits64 verdict;
    // The block; above it the step.
    Bits64 place;
    // The flag that was waited for, and the one that was there.
    Bits64 expected;
    Bits64 seen;
    Bits64 waited_ns;
    // The digest of the call, where the flags don't show it.
    Bits64 digest;
    Bits64 reserved[2];
};

static_assert(sizeof(Status) == 64, "the status is that of the host");

const Bits32 ABORTED = 1;
const Bits32 TIMED_OUT = 2;
const Bits32 MISMATCH = 3;
// A message of the peer's has another length; in the same place, with these added, what a message waited for.
const Bits32 OTHER_LENGTH = 4;
const Bits32 SENDING = 0x10;
const Bits32 RECEIVING = 0x20;
// The same for a call that a stream makes: for a peer to put a message into this rank's bay, or to take one from its own.
const Bits32 PUTTING = 0x30;
const Bits32 TAKING = 0x40;

// What a launch is given; `PeerArguments` in comm/src/device/peers.rs is the same.
struct PeerArguments {
    // Every rank's board, as this one reaches it.
    Board *boards[RANKS_MAX];
    // The pieces that this rank publishes, and their bytes; 0 where there is nothing.
    const Bits8 *sources[RANKS_MAX];
    Bits64 outgoing[RANKS_MAX];
    // Where what comes from each rank goes, and its bytes. A reduction has one target, the first.
    Bits8 *targets[RANKS_MAX];
    Bits64 incoming[RANKS_MAX];
    // The digest of the call, as this rank says it to each peer and as each peer should say it.
    Bits32 says[RANKS_MAX];
    Bits32 expects[RANKS_MAX];
    Status *status;
    // Not 0: the launch is to end.
    const Bits32 *abort;
    // How long one wait may take.
    Bits64 limit_ns;
    // What this rank's elements are multiplied by, for a scaled sum.
    Bits64 factor;
    // The bytes of a vector that is cut into parts.
    Bits64 whole;
    // The bytes of half of a board's cells, and those of one block in it.
    Bits64 half;
    Bits64 room;
    Bits32 rank;
    Bits32 ranks;
    Bits32 steps;
    // The bytes of a cell, a multiple of 16: what a block takes of each piece in a step.
    Bits32 span;
    // How many pieces this rank publishes, and which of everybody's pieces it reads.
    Bits32 pieces;
    Bits32 piece;
    // The ranks whose elements are folded.
    Bits32 first;
    Bits32 n_sources;
    // For an average: what the sum is divided by; 0 leaves the sum.
    Bits32 divisor;
    Bits32 reserved;
};

static_assert(sizeof(PeerArguments) == 864, "the arguments are those of the host");

// Looking at the clock and at the host's memory takes longer than looking at a flag.
const Bits32 POLLS_PER_LOOK = 64;
const Bits32 SLEEP_NS = 100;

// Claims the status for the first failure, and writes it. False, for who fails.
PACELINE_DEVICE bool fail(Board &board, Status *status, Bits32 reason, Bits32 peer, Bits32 step, Bits64 expected,
                          Bits64 seen, Bits64 waited_ns, Bits64 digest = 0) {
    if (claim(&board.failed)) {
        status->digest = digest;
        status->place = (Bits64)step << 32 | blockIdx.x;
        status->expected = expected;
        status->seen = seen;
        status->waited_ns = waited_ns;
        store_release(&status->verdict, (Bits64)peer << 32 | reason);
    }
    return false;
}

// A block's way through a launch, together with the same block of the other ranks.
struct Lane {
    const PeerArguments &given;
    Board &board;
    // The last step before this launch, or before the first turn.
    Bits32 before;
    bool sound;

    PACELINE_INLINE explicit Lane(const PeerArguments &arguments)
        : given(arguments), board(*arguments.boards[arguments.rank]), before(board.step),
          sound(load_relaxed(&board.failed) == 0) {}

    PACELINE_INLINE Bits32 step(Bits32 turn) const { return before + 1 + turn; }

    // This block's cell for piece `piece` of `rank` in step `step`.
    PACELINE_INLINE Pack *cell(Bits32 rank, Bits32 step, Bits32 piece) const {
        Bits8 *const cells = (Bits8 *)(given.boards[rank] + 1);
        return (Pack *)(cells + (step & 1u) * given.half + blockIdx.x * given.room + (Bits64)piece * given.span);
    }

    // Where this block's share of a piece begins in turn `turn`.
    PACELINE_INLINE Bits64 share(Bits32 turn) const { return ((Bits64)turn * gridDim.x + blockIdx.x) * given.span; }

    // Publishes what was written to the cells of this turn, and waits until the peers have done so too: then theirs may be
    // read, and the cells of the next turn written. False if the launch is to end; all threads are told the same.
    PACELINE_INLINE bool meet(Bits32 turn) {
        if (!__syncthreads_and(sound))
            return false;
        const Bits32 number = step(turn);
        for (Bits32 peer = threadIdx.x; peer < given.ranks; peer += blockDim.x)
            if (peer != given.rank)
                store_release(&given.boards[peer]->arrived[blockIdx.x][given.rank], flag(number, given.says[peer]));
        for (Bits32 peer = threadIdx.x; peer < given.ranks; peer += blockDim.x)
            if (sound && peer != given.rank)
                sound = wait(number, peer);
        return __syncthreads_and(sound);
    }

    // Begins anew behind a first meeting.
    PACELINE_INLINE void go_on() { before++; }

    // The last block to end notes how far the launch has come. All threads have read `before`: they have met.
    PACELINE_INLINE void leave(Bits32 steps) const {
        if (threadIdx.x == 0 && count_one(&board.ended) == gridDim.x - 1) {
            board.ended = 0;
            board.step = before + steps;
        }
    }

  private:
    PACELINE_DEVICE Bits64 flag(Bits32 step, Bits32 digest) { return (Bits64)step << 32 | digest; }

    // Waits for a peer's flag. The peer may be one step ahead: it has found this rank's digest to be its own, then.
    PACELINE_INLINE bool wait(Bits32 step, Bits32 peer) const {
        const Bits64 *const arrived = &board.arrived[blockIdx.x][peer];
        const Bits64 expected = flag(step, given.expects[peer]);
        Bits64 since = 0;
        for (Bits32 polls = 1;; polls++) {
            const Bits64 seen = load_acquire(arrived);
            const Bits32 ahead = (Bits32)(seen >> 32) - step;
            if (seen == expected || ahead == 1)
                return true;
            if (ahead == 0)
                return fail(MISMATCH, peer, expected, seen, 0);
            if (polls % POLLS_PER_LOOK == 0) {
                const Bits64 now = now_ns();
                if (since == 0)
                    since = now;
                if (load_relaxed(&board.failed) != 0)
                    return false;
                if (load_relaxed(given.abort) != 0)
                    return fail(ABORTED, peer, expected, seen, now - since);
                if (now - since > given.limit_ns)
                    return fail(TIMED_OUT, peer, expected, seen, now - since);
                sleep_ns(SLEEP_NS);
            }
            relax();
        }
    }

    PACELINE_INLINE bool fail(Bits32 reason, Bits32 peer, Bits64 expected, Bits64 seen, Bits64 waited_ns) const {
        return paceline::fail(board, given.status, reason, peer, (Bits32)(expected >> 32), expected, seen, waited_ns);
    }
};

}  // namespace paceline
