// Messages: chunk by chunk through slots in the sender's board, from which the receiver copies them.
//
// Nobody but the two ranks of a message takes part in it. A launch may have many messages, in any order: each block looks
// after its share of all of them by turns, so that one that can't go on holds up none but those behind it between the same two
// ranks. README.md, "messages", has the protocol.

namespace paceline {

const Bits32 MESSAGES_MAX = 128;
// Both ways between this rank and each peer: messages to it, and messages from it.
const Bits32 WAYS_MAX = 2 * RANKS_MAX;

// `Message` in comm/src/device/mail.rs is the same.
struct Message {
    Bits8 *array;
    Bits64 bytes;
    // The bytes of a chunk, a multiple of 16, and how many blocks share the chunks.
    Bits32 span;
    Bits16 lanes;
    // What it is part of. Both ranks say the same.
    Bits16 kind;
};

// What a launch is given; `MailArguments` in comm/src/device/mail.rs is the same.
struct MailArguments {
    Board *boards[RANKS_MAX];
    Status *status;
    const Bits32 *abort;
    Bits64 limit_ns;
    // Where the slots lie in a board; the bytes of one, and how many blocks have some.
    Bits64 slots_at;
    Bits32 slot;
    Bits32 lanes;
    Bits32 rank;
    Bits32 ranks;
    // Not 0: what comes from a rank goes where what goes to it lies, so that it must have left.
    Bits32 in_place;
    // Where the messages of each way begin: to rank 0, from rank 0, to rank 1, ... and where the last end.
    Bits16 begins[WAYS_MAX + 2];
    Bits32 reserved[2];
    Message messages[MESSAGES_MAX];
};

static_assert(sizeof(MailArguments) == 3328, "the arguments are those of the host");

// What all threads of a block copy in a pass for one way.
struct Chunk {
    Bits8 *array;
    Bits64 at;
    Bits64 bytes;
    Pack *slot;
    Bits32 packs;
};

// From the sender's array to its slot.
struct Put {
    const Chunk &chunk;

    PACELINE_INLINE bool read(Bits32 index, Pack &pack) const {
        pack = paceline::read(chunk.array, chunk.at + index * 16ull, chunk.bytes);
        return true;
    }
    PACELINE_INLINE void write(Bits32 index, const Pack &pack) const { chunk.slot[index] = pack; }
};

// From the sender's slot to the receiver's array.
struct Take {
    const Chunk &chunk;

    PACELINE_INLINE bool read(Bits32 index, Pack &pack) const {
        pack = chunk.slot[index];
        return true;
    }
    PACELINE_INLINE void write(Bits32 index, const Pack &pack) const {
        paceline::write<Bits8>(chunk.array, chunk.at + index * 16ull, chunk.bytes, pack);
    }
};

// One way between this rank and a peer, as far as this block goes, and as the one thread knows it that looks after it.
template <bool SENDS> struct Way {
    const MailArguments &given;
    const Bits32 peer;
    Bits32 message, end;
    // Where the next chunk begins in its message.
    Bits64 at;
    // How many chunks have gone this way.
    Bits32 gone;
    // Whether one goes in this pass.
    bool moves;
    Bits32 polls;
    Bits64 since;

    PACELINE_INLINE Way(const MailArguments &given, Bits32 peer)
        : given(given), peer(peer), message(given.begins[2 * peer + !SENDS]), end(given.begins[2 * peer + !SENDS + 1]),
          at(0), gone(counter()), moves(false), polls(0), since(0) {
        begin();
    }

    PACELINE_INLINE bool is_over() const { return message == end; }

    // Whether a chunk of the present message, which lies at the same place on both ways, has gone.
    PACELINE_INLINE bool is_beyond(Bits64 place) const { return is_over() || at > place; }

    // Looks whether the next chunk can go, and says what is to be copied then. False if the launch is to end.
    PACELINE_INLINE bool look(Chunk &chunk, bool is_free) {
        moves = false;
        chunk.packs = 0;
        if (is_over())
            return true;
        const Message &given_message = given.messages[message];
        Bits64 seen = 0;
        if (SENDS) {
            seen = load_acquire(&own().taken[blockIdx.x][peer]);
            moves = gone - (Bits32)seen < SLOTS;
        } else if (is_free) {
            seen = load_acquire(&own().posted[blockIdx.x][peer][gone % SLOTS]);
            moves = seen == flag();
            if (!moves && seen >> 44 == flag() >> 44) {
                const bool is_alike = ((seen ^ flag()) >> 40 & 15u) == 0;
                return fails(is_alike ? OTHER_LENGTH : MISMATCH, seen, 0);
            }
        }
        if (!moves)
            return !is_free || wait(seen);
        since = 0;
        const Bits64 left = given_message.bytes - at;
        const Bits32 bytes = left < given_message.span ? (Bits32)left : given_message.span;
        chunk.array = given_message.array;
        chunk.at = at;
        chunk.bytes = given_message.bytes;
        chunk.slot = slot();
        chunk.packs = (bytes + 15) / 16;
        return true;
    }

    // Tells the peer of the chunk that has been copied by all threads, which have met since.
    PACELINE_INLINE void tell() {
        if (!moves)
            return;
        if (SENDS)
            store_release(&theirs().posted[blockIdx.x][given.rank][gone % SLOTS], flag());
        else
            store_release(&theirs().taken[blockIdx.x][given.rank], (Bits64)gone + 1);
        gone++;
        at += (Bits64)given.messages[message].span * given.messages[message].lanes;
        if (!is_within()) {
            message++;
            begin();
        }
    }

    PACELINE_INLINE void leave() const { counter() = gone; }

  private:
    PACELINE_INLINE Board &own() const { return *given.boards[given.rank]; }
    PACELINE_INLINE Board &theirs() const { return *given.boards[peer]; }
    PACELINE_INLINE Bits32 &counter() const {
        return SENDS ? own().sent[blockIdx.x][peer] : own().received[blockIdx.x][peer];
    }

    // What the sender posts with the next chunk: 20 bits of its number, 4 of the kind, and 40 of the message's length.
    PACELINE_INLINE Bits64 flag() const {
        const Message &now = given.messages[message];
        return (Bits64)(gone + 1) << 44 | (Bits64)now.kind << 40 | now.bytes;
    }

    PACELINE_INLINE Pack *slot() const {
        const Bits32 from = SENDS ? given.rank : peer, to = SENDS ? peer : given.rank;
        const Bits64 number = ((Bits64)to * given.lanes + blockIdx.x) * SLOTS + gone % SLOTS;
        return (Pack *)((Bits8 *)given.boards[from] + given.slots_at + number * given.slot);
    }

    // A message of nothing has one chunk all the same, so that it is met.
    PACELINE_INLINE bool is_within() const {
        const Message &now = given.messages[message];
        return at < now.bytes || (at == 0 && now.bytes == 0);
    }

    // The first message from the present one on of which this block moves anything.
    PACELINE_INLINE void begin() {
        for (; message < end; message++) {
            const Message &now = given.messages[message];
            at = (Bits64)blockIdx.x * now.span;
            if (blockIdx.x < now.lanes && is_within())
                return;
        }
    }

    PACELINE_INLINE bool wait(Bits64 seen) {
        if (++polls % POLLS_PER_LOOK != 0)
            return true;
        const Bits64 now = now_ns();
        if (since == 0)
            since = now;
        if (load_relaxed(&own().failed) != 0)
            return false;
        if (load_relaxed(given.abort) != 0)
            return fails(ABORTED, seen, now - since);
        if (now - since > given.limit_ns)
            return fails(TIMED_OUT, seen, now - since);
        sleep_ns(SLEEP_NS);
        return true;
    }

    PACELINE_INLINE bool fails(Bits32 reason, Bits64 seen, Bits64 waited_ns) const {
        return fail(own(), given.status, reason | (SENDS ? SENDING : RECEIVING), peer, gone + 1, flag(), seen, waited_ns);
    }
};

// Moves all messages of a launch, both ways. Elements are bytes.
struct Mail {
    typedef MailArguments Given;

    template <class E, class O> PACELINE_DEVICE void run(const MailArguments &given) {
        __shared__ Chunk chunks[WAYS_MAX];
        // Each of the first threads looks after both ways between this rank and one peer.
        const bool looks = threadIdx.x < given.ranks;
        const Bits32 peer = looks ? threadIdx.x : 0;
        Way<true> out(given, peer);
        Way<false> in(given, peer);
        bool sound = load_relaxed(&given.boards[given.rank]->failed) == 0;
        for (;;) {
            if (looks && sound) {
                sound = out.look(chunks[2 * peer], true);
                const bool is_free = given.in_place == 0 || out.is_beyond(in.at);
                sound = sound && in.look(chunks[2 * peer + 1], is_free);
                if (!out.moves && !in.moves && !(out.is_over() && in.is_over()))
                    relax();
            }
            if (!__syncthreads_and(sound))
                return;
            for (Bits32 way = 0; way < 2 * given.ranks; way += 2) {
                do_all(Put{chunks[way]}, chunks[way].packs);
                do_all(Take{chunks[way + 1]}, chunks[way + 1].packs);
            }
            __syncthreads();
            if (looks) {
                out.tell();
                in.tell();
            }
            if (__syncthreads_and(!looks || (out.is_over() && in.is_over())))
                break;
        }
        if (looks) {
            out.leave();
            in.leave();
        }
    }
};

}  // namespace paceline
