/* All-reduce of floats over MPI: the loop that `side_by_side` runs for every implementation.
   Arguments: bytes iterations, repeated. Prints, for each pair, bytes and microseconds per call, the slowest rank's. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        size_t bytes = strtoull(argv[i], NULL, 10);
        int iterations = atoi(argv[i + 1]);
        int count = (int)(bytes / sizeof(float));
        float *input = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        float *output = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        for (int k = 0; k < count; k++) {
            input[k] = 1.0f;
            output[k] = 0.0f;
        }
        for (int k = 0; k < iterations / 10 + 2; k++)
            MPI_Allreduce(input, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        for (int k = 0; k < count; k++)
            if (output[k] != (float)size) {
                fprintf(stderr, "wrong result\n");
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (int k = 0; k < iterations; k++)
            MPI_Allreduce(input, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double mine = (MPI_Wtime() - start) / iterations * 1e6, slowest;
        MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("%zu %.4f\n", bytes, slowest);
        free(input);
        free(output);
    }
    MPI_Finalize();
    return 0;
}
