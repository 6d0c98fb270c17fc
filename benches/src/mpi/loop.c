/* The loop that `side_by_side` runs for every implementation, over MPI.
   Arguments: call:type:bytes:iterations, each one cell; or --orders and a folder of pipes (orders.rs). Rank 0 prints, as
   each is done, "time <microseconds per call>", the slowest rank's; for overlap, as many of overlap/mod.rs's samples as
   there are iterations. pattern.rs says what the buffers hold. */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum call { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BROADCAST, REDUCE, SEND_RECV, PING_PONG, ONE_WAY,
            REDUCE_SCATTER_V, ALL_GATHER_V, ALL_TO_ALL_V, GROUP_OF_50, SPLIT, SPLIT_HALVES, SPLIT_ALL_REDUCE, OVERLAP,
            CALLS };
static const char *const names[CALLS] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast",
                                         "reduce", "send_recv", "ping_pong", "one_way", "reduce_scatter_v",
                                         "all_gather_v", "all_to_all_v", "group_of_50", "split", "split_halves",
                                         "split_all_reduce", "overlap"};
enum { GROUPED = 50 };

struct cell {
    enum call call;
    MPI_Datatype type;
    int is_double, count, iterations;
    size_t bytes;
};

static int rank, size;
static MPI_Comm comm;
/* Where blocks of different lengths lie, and their lengths. */
static int *sends, *send_places, *receives, *receive_places;
static MPI_Request requests[GROUPED];
static MPI_Status statuses[GROUPED];
/* Whether a group is begun at once, or is calls in a row. */
static int at_once;

static void fail(const char *what, const char *text) {
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static struct cell parse(const char *text) {
    struct cell cell;
    char call[32], type[8];
    if (sscanf(text, "%31[^:]:%7[^:]:%zu:%d", call, type, &cell.bytes, &cell.iterations) != 4)
        fail("not call:type:bytes:iterations", text);
    int at = 0;
    while (at < CALLS && strcmp(call, names[at]) != 0)
        at++;
    if (at == CALLS)
        fail("no such call", call);
    cell.call = (enum call)at;
    cell.is_double = strcmp(type, "f64") == 0;
    if (!cell.is_double && strcmp(type, "f32") != 0)
        fail("no such type", type);
    cell.type = cell.is_double ? MPI_DOUBLE : MPI_FLOAT;
    size_t elements = cell.bytes / (cell.is_double ? sizeof(double) : sizeof(float));
    int has_blocks = cell.call == REDUCE_SCATTER || cell.call == ALL_GATHER || cell.call == ALL_TO_ALL;
    cell.count = (int)(has_blocks ? elements / (size_t)size : elements);
    return cell;
}

static void *buffer(size_t bytes) {
    void *memory = aligned_alloc(4096, (bytes / 4096 + 1) * 4096);
    if (!memory)
        fail("no memory", "for a buffer");
    return memory;
}

static void set(const struct cell *cell, void *memory, size_t at, int value) {
    if (cell->is_double)
        ((double *)memory)[at] = value;
    else
        ((float *)memory)[at] = (float)value;
}

static double get(const struct cell *cell, const void *memory, size_t at) {
    return cell->is_double ? ((const double *)memory)[at] : (double)((const float *)memory)[at];
}

static int value(size_t of, size_t at) { return (int)((of + at) % 5 + 1); }

static int sum(size_t at) {
    int total = 0;
    for (int of = 0; of < size; of++)
        total += value((size_t)of, at);
    return total;
}

static size_t below(size_t k) { return k ? k * (k - 1) / 2 : 0; }

/* shares.rs says how vectors are cut. */
static size_t begin(const struct cell *cell, size_t from, size_t to) {
    size_t n = (size_t)size, elements = (size_t)cell->count;
    if (cell->call != ALL_TO_ALL_V)
        return elements * below(to + 1) / below(n + 1);
    size_t weight = from + to <= n ? below(from + to) - below(from) : below(n) - below(from) + below(from + to - n);
    return elements * weight / below(n);
}

static int block(const struct cell *cell, int from, int to) {
    return (int)(begin(cell, (size_t)from, (size_t)to + 1) - begin(cell, (size_t)from, (size_t)to));
}

/* Fills the tables of lengths and places; returns how many elements this rank receives in all_to_all_v. */
static size_t place(const struct cell *cell) {
    int received = 0;
    for (int peer = 0; peer < size; peer++) {
        sends[peer] = block(cell, rank, peer);
        send_places[peer] = (int)begin(cell, (size_t)rank, (size_t)peer);
        receives[peer] = block(cell, peer, rank);
        receive_places[peer] = received;
        received += receives[peer];
    }
    return (size_t)received;
}

static int expected(const struct cell *cell, size_t at) {
    size_t count = (size_t)cell->count, me = (size_t)rank;
    switch (cell->call) {
    case REDUCE_SCATTER: return sum(me * count + at);
    case ALL_GATHER: return value(at / count, at % count);
    case ALL_TO_ALL: return value(at / count, me * count + at % count);
    case BROADCAST: return value(0, at);
    case REDUCE_SCATTER_V: return sum((size_t)send_places[rank] + at);
    case ALL_GATHER_V:
    case ALL_TO_ALL_V: {
        const int *lengths = cell->call == ALL_GATHER_V ? sends : receives;
        size_t from = 0;
        while (at >= (size_t)lengths[from])
            at -= (size_t)lengths[from++];
        return value(from, at + (cell->call == ALL_GATHER_V ? 0 : begin(cell, from, me)));
    }
    case SEND_RECV: return value((size_t)((rank + size - 1) % size), at);
    case PING_PONG:
    case ONE_WAY: return value((size_t)(rank ^ 1), at);
    default: return sum(at);
    }
}

static int has_result(const struct cell *cell) {
    switch (cell->call) {
    case REDUCE: return rank == 0;
    case PING_PONG: return (rank ^ 1) < size;
    case ONE_WAY: return rank % 2 == 1;
    default: return 1;
    }
}

static MPI_Comm made_by_split(int color, int want) {
    MPI_Comm made;
    int got;
    MPI_Comm_split(MPI_COMM_WORLD, color, rank, &made);
    MPI_Comm_size(made, &got);
    if (got != want)
        fail("a wrong result", "split");
    return made;
}

static void group(const struct cell *cell, const char *input, char *output) {
    size_t bytes = (size_t)cell->count * (cell->is_double ? sizeof(double) : sizeof(float));
    for (int k = 0; k < GROUPED; k++, input += bytes, output += bytes)
        if (at_once)
            MPI_Iallreduce(input, output, cell->count, cell->type, MPI_SUM, comm, &requests[k]);
        else
            MPI_Allreduce(input, output, cell->count, cell->type, MPI_SUM, comm);
    if (at_once)
        MPI_Waitall(GROUPED, requests, statuses);
}

static void run(const struct cell *cell, const void *input, void *output) {
    int first = (size + 1) / 2, other = rank ^ 1;
    MPI_Comm made;
    int count = cell->count, next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Datatype type = cell->type;
    switch (cell->call) {
    case SPLIT_ALL_REDUCE:
    case ALL_REDUCE: MPI_Allreduce(input, output, count, type, MPI_SUM, comm); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(input, output, count, type, MPI_SUM, comm); break;
    case ALL_GATHER: MPI_Allgather(input, count, type, output, count, type, comm); break;
    case ALL_TO_ALL: MPI_Alltoall(input, count, type, output, count, type, comm); break;
    case BROADCAST: MPI_Bcast(output, count, type, 0, comm); break;
    case REDUCE: MPI_Reduce(input, output, count, type, MPI_SUM, 0, comm); break;
    case REDUCE_SCATTER_V: MPI_Reduce_scatter(input, output, sends, type, MPI_SUM, comm); break;
    case ALL_GATHER_V: MPI_Allgatherv(input, sends[rank], type, output, sends, send_places, type, comm); break;
    case ALL_TO_ALL_V:
        MPI_Alltoallv(input, sends, send_places, type, output, receives, receive_places, type, comm);
        break;
    case GROUP_OF_50: group(cell, input, output); break;
    case PING_PONG:
    case ONE_WAY:
        if (rank % 2 == 0 && other < size)
            MPI_Send(input, count, type, other, 0, comm);
        if (other < size && (rank % 2 == 1 || cell->call == PING_PONG))
            MPI_Recv(output, count, type, other, 0, comm, MPI_STATUS_IGNORE);
        if (rank % 2 == 1 && cell->call == PING_PONG)
            MPI_Send(input, count, type, other, 0, comm);
        break;
    case SPLIT:
        made = made_by_split(0, size);
        MPI_Comm_free(&made);
        break;
    case SPLIT_HALVES:
        made = made_by_split(rank < first ? 0 : 1, rank < first ? first : size - first);
        MPI_Comm_free(&made);
        break;
    default:
        MPI_Sendrecv(input, count, type, next, 0, output, count, type, before, 0, comm, MPI_STATUS_IGNORE);
    }
}

/* The slowest rank's microseconds per call, on rank 0. */
static double timed(const struct cell *cell, const void *input, void *output) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int k = 0; k < cell->iterations; k++)
        run(cell, input, output);
    double mine = (MPI_Wtime() - start) / cell->iterations * 1e6, slowest = 0;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return slowest;
}

static void measure(const struct cell *cell) {
    size_t blocks = (size_t)cell->count * (size_t)size, count = (size_t)cell->count, received = place(cell);
    size_t inputs = count, outputs = count;
    if (cell->call == REDUCE_SCATTER || cell->call == ALL_TO_ALL)
        inputs = blocks;
    if (cell->call == ALL_GATHER || cell->call == ALL_TO_ALL)
        outputs = blocks;
    if (cell->call == ALL_GATHER_V)
        inputs = (size_t)sends[rank];
    if (cell->call == REDUCE_SCATTER_V)
        outputs = (size_t)sends[rank];
    if (cell->call == ALL_TO_ALL_V)
        outputs = received;
    if (cell->call == GROUP_OF_50)
        inputs = outputs = count * GROUPED;
    size_t width = cell->is_double ? sizeof(double) : sizeof(float);
    void *input = buffer(inputs * width), *output = buffer(outputs * width);
    for (size_t at = 0; at < inputs; at++)
        set(cell, input, at, value((size_t)rank, at));
    if (cell->call == SPLIT_ALL_REDUCE)
        comm = made_by_split(0, size);
    double best = 0;
    for (at_once = 0; at_once <= (cell->call == GROUP_OF_50); at_once++) {
        for (size_t at = 0; at < outputs; at++)
            set(cell, output, at, cell->call == BROADCAST && rank == 0 ? value(0, at) : 0);
        for (int k = 0; k < cell->iterations / 10 + 2; k++)
            run(cell, input, output);
        for (size_t at = 0; at < outputs && has_result(cell); at++)
            if (get(cell, output, at) != expected(cell, at))
                fail("a wrong result", names[cell->call]);
        double slowest = timed(cell, input, output);
        best = at_once == 0 || slowest < best ? slowest : best;
    }
    if (rank == 0) {
        printf("time %.4f\n", best);
        fflush(stdout);
    }
    if (cell->call == SPLIT_ALL_REDUCE)
        MPI_Comm_free(&comm);
    comm = MPI_COMM_WORLD;
    free(input);
    free(output);
}

static double seconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double of_others(void) { return seconds(CLOCK_PROCESS_CPUTIME_ID) - seconds(CLOCK_THREAD_CPUTIME_ID); }

/* A chain of multiplications, each of which needs the one before. */
static void compute(double turns) {
    volatile uint64_t result = 1;
    uint64_t state = result;
    for (uint64_t turn = 0; turn < (uint64_t)turns; turn++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(state));
    }
    result = state;
}

static double turns_per_second(void) {
    double best = 1e9, turns = 2e7;
    for (int k = 0; k < 5; k++) {
        double start = MPI_Wtime();
        compute(turns);
        double took = MPI_Wtime() - start;
        best = took < best ? took : best;
    }
    return turns / best;
}

static void fill(const struct cell *cell, void *memory) {
    for (size_t at = 0; at < (size_t)cell->count; at++)
        set(cell, memory, at, value((size_t)rank, at));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void check(const struct cell *cell, const void *memory) {
    for (size_t at = 0; at < (size_t)cell->count; at++)
        if (get(cell, memory, at) != expected(cell, at))
            fail("a wrong result", names[cell->call]);
}

static void blocking(const struct cell *cell, void *memory, double *took, double *cpu) {
    fill(cell, memory);
    double start = MPI_Wtime(), before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    MPI_Allreduce(MPI_IN_PLACE, memory, cell->count, cell->type, MPI_SUM, MPI_COMM_WORLD);
    *took = MPI_Wtime() - start;
    *cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - before;
    check(cell, memory);
}

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* See overlap/worker.rs. */
static void overlap(const struct cell *cell) {
    void *memory = buffer((size_t)cell->count * (cell->is_double ? sizeof(double) : sizeof(float)));
    double speed = turns_per_second(), times[5], cpu;
    for (int k = 0; k < 5; k++)
        blocking(cell, memory, &times[k], &cpu);
    MPI_Allreduce(MPI_IN_PLACE, times, 5, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(times, 5, sizeof(double), by_size);
    double as_long = times[2];
    for (int k = 0; k < cell->iterations; k++) {
        double sample[5];
        blocking(cell, memory, &sample[0], &sample[3]);
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        compute(speed * as_long);
        sample[1] = MPI_Wtime() - start;
        fill(cell, memory);
        double before = of_others();
        MPI_Request request;
        start = MPI_Wtime();
        MPI_Iallreduce(MPI_IN_PLACE, memory, cell->count, cell->type, MPI_SUM, MPI_COMM_WORLD, &request);
        compute(speed * as_long);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        sample[2] = MPI_Wtime() - start;
        sample[4] = of_others() - before;
        check(cell, memory);
        MPI_Allreduce(MPI_IN_PLACE, sample, 5, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        for (int at = 0; at < 5 && rank == 0; at++)
            printf("time %.1f\n", sample[at] * 1e6);
        fflush(stdout);
    }
    free(memory);
}

static void one(const char *text) {
    struct cell cell = parse(text);
    if (cell.call == OVERLAP)
        overlap(&cell);
    else
        measure(&cell);
}

/* Runs what is written to this rank's pipe, until "end". */
static void obey(const char *folder) {
    char path[4096], word[128];
    snprintf(path, sizeof path, "%s/%d", folder, rank);
    for (;;) {
        FILE *pipe = fopen(path, "r");
        if (!pipe)
            fail("can't be read", path);
        while (fscanf(pipe, "%127s", word) == 1) {
            if (strcmp(word, "end") == 0)
                return;
            one(word);
        }
        fclose(pipe);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    comm = MPI_COMM_WORLD;
    int *tables = buffer((size_t)size * 4 * sizeof(int));
    sends = tables;
    send_places = tables + size;
    receives = tables + 2 * size;
    receive_places = tables + 3 * size;
    if (argc == 3 && strcmp(argv[1], "--orders") == 0)
        obey(argv[2]);
    else
        for (int i = 1; i < argc; i++)
            one(argv[i]);
    free(tables);
    MPI_Finalize();
    return 0;
}
