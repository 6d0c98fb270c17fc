// Flags alone: what a stream that copies by itself tells the other ranks between its copies, and what it waits for.
//
// One block, a thread for each rank. README.md, "bays", has the protocol.

namespace paceline {

// `FlagsArguments` in comm/src/device/flags.rs is the same.
struct FlagsArguments {
    // The boards, and the digest of the call; nothing is published.
    PeerArguments given;
    // How many messages of this call have been put into each rank's bay, and taken from it, and how many of those that each rank
    // puts into this one's bay, and takes from it, are waited for. 0 where there is nothing to say, or to wait for.
    Bits32 puts[RANKS_MAX];
    Bits32 takes[RANKS_MAX];
    Bits32 awaited_puts[RANKS_MAX];
    Bits32 awaited_takes[RANKS_MAX];
    // Not 0: after that, all ranks meet.
    Bits32 meets;
    Bits32 reserved;
};

static_assert(sizeof(FlagsArguments) == 864 + 4 * 64 + 8, "the arguments are those of the host");

struct Flags {
    typedef FlagsArguments Given;

    template <class E, class O> PACELINE_DEVICE void run(const FlagsArguments &flags) {
        const PeerArguments &given = flags.given;
        Lane lane(given);
        if (!__syncthreads_and(lane.sound))
            return;
        for (Bits32 peer = threadIdx.x; peer < given.ranks; peer += blockDim.x) {
            Board &theirs = *given.boards[peer];
            if (flags.puts[peer] != 0)
                store_release(&theirs.filled[given.rank], number(lane, flags.puts[peer]));
            if (flags.takes[peer] != 0)
                store_release(&theirs.emptied[given.rank], number(lane, flags.takes[peer]));
        }
        for (Bits32 peer = threadIdx.x; peer < given.ranks; peer += blockDim.x) {
            const Board &own = lane.board;
            if (flags.awaited_puts[peer] != 0)
                lane.sound = lane.sound && wait(lane, &own.filled[peer], peer, flags.awaited_puts[peer], PUTTING);
            if (flags.awaited_takes[peer] != 0)
                lane.sound = lane.sound && wait(lane, &own.emptied[peer], peer, flags.awaited_takes[peer], TAKING);
        }
        if (!__syncthreads_and(lane.sound) || flags.meets == 0)
            return;
        lane.meet(0);
        lane.leave(1);
    }

  private:
    // All of a call's messages have the number of its first meeting: what an earlier call has left is none of them.
    PACELINE_DEVICE Bits64 number(const Lane &lane, Bits32 messages) { return (Bits64)lane.before << 32 | messages; }

    PACELINE_DEVICE bool wait(const Lane &lane, const Bits64 *flag, Bits32 peer, Bits32 messages, Bits32 what) {
        const PeerArguments &given = lane.given;
        const Bits64 expected = number(lane, messages);
        Bits64 since = 0;
        for (Bits32 polls = 1;; polls++) {
            const Bits64 seen = load_acquire(flag);
            if (seen >> 32 == expected >> 32 && (Bits32)seen >= messages)
                return true;
            if (polls % POLLS_PER_LOOK == 0) {
                const Bits64 now = now_ns();
                if (since == 0)
                    since = now;
                if (load_relaxed(&lane.board.failed) != 0)
                    return false;
                const bool aborted = load_relaxed(given.abort) != 0;
                if (aborted || now - since > given.limit_ns)
                    return fail(lane.board, given.status, (aborted ? ABORTED : TIMED_OUT) | what, peer, lane.before,
                                expected, seen, now - since, given.expects[peer]);
                sleep_ns(SLEEP_NS);
            }
            relax();
        }
    }
};

}  // namespace paceline
