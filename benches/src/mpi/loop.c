/* The loop that `side_by_side` runs for every implementation, over MPI.
   Arguments: call:type:bytes:iterations, each one cell. Rank 0 prints, as each is done, "time <microseconds per call>",
   the slowest rank's; for overlap, as many of overlap/mod.rs's samples as there are iterations. pattern.rs says what the
   buffers hold. */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum call { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BROADCAST, REDUCE, SEND_RECV, OVERLAP, CALLS };
static const char *const names[CALLS] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                         "broadcast",  "reduce",         "send_recv",  "overlap"};

struct cell {
    enum call call;
    MPI_Datatype type;
    int is_double, count, iterations;
    size_t bytes;
};

static int rank, size;

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
    void *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
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

static int expected(const struct cell *cell, size_t at) {
    size_t count = (size_t)cell->count, me = (size_t)rank;
    switch (cell->call) {
    case REDUCE_SCATTER: return sum(me * count + at);
    case ALL_GATHER: return value(at / count, at % count);
    case ALL_TO_ALL: return value(at / count, me * count + at % count);
    case BROADCAST: return value(0, at);
    case SEND_RECV: return value((size_t)((rank + size - 1) % size), at);
    default: return sum(at);
    }
}

static void run(const struct cell *cell, const void *input, void *output) {
    int count = cell->count, next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Datatype type = cell->type;
    switch (cell->call) {
    case ALL_REDUCE: MPI_Allreduce(input, output, count, type, MPI_SUM, MPI_COMM_WORLD); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(input, output, count, type, MPI_SUM, MPI_COMM_WORLD); break;
    case ALL_GATHER: MPI_Allgather(input, count, type, output, count, type, MPI_COMM_WORLD); break;
    case ALL_TO_ALL: MPI_Alltoall(input, count, type, output, count, type, MPI_COMM_WORLD); break;
    case BROADCAST: MPI_Bcast(output, count, type, 0, MPI_COMM_WORLD); break;
    case REDUCE: MPI_Reduce(input, output, count, type, MPI_SUM, 0, MPI_COMM_WORLD); break;
    default:
        MPI_Sendrecv(input, count, type, next, 0, output, count, type, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void measure(const struct cell *cell) {
    size_t blocks = (size_t)cell->count * (size_t)size, count = (size_t)cell->count;
    size_t inputs = cell->call == REDUCE_SCATTER || cell->call == ALL_TO_ALL ? blocks : count;
    size_t outputs = cell->call == ALL_GATHER || cell->call == ALL_TO_ALL ? blocks : count;
    size_t width = cell->is_double ? sizeof(double) : sizeof(float);
    void *input = buffer(inputs * width), *output = buffer(outputs * width);
    for (size_t at = 0; at < inputs; at++)
        set(cell, input, at, value((size_t)rank, at));
    for (size_t at = 0; at < outputs; at++)
        set(cell, output, at, cell->call == BROADCAST && rank == 0 ? value(0, at) : 0);
    for (int k = 0; k < cell->iterations / 10 + 2; k++)
        run(cell, input, output);
    for (size_t at = 0; at < outputs && (cell->call != REDUCE || rank == 0); at++)
        if (get(cell, output, at) != expected(cell, at))
            fail("a wrong result", names[cell->call]);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int k = 0; k < cell->iterations; k++)
        run(cell, input, output);
    double mine = (MPI_Wtime() - start) / cell->iterations * 1e6, slowest = 0;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("time %.4f\n", slowest);
        fflush(stdout);
    }
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

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i < argc; i++) {
        struct cell cell = parse(argv[i]);
        if (cell.call == OVERLAP)
            overlap(&cell);
        else
            measure(&cell);
    }
    MPI_Finalize();
    return 0;
}
