// Ends a launch that touches memory that it may not, and not the process: the driver calls `paceline_escape` when it is told
// of the signal.

#include <csetjmp>

static thread_local sigjmp_buf *way_out;

// Runs a launch. Returns 0, and how many addresses were misaligned, or 1 if the launch was ended.
extern "C" int paceline_guarded(unsigned long (*launch)(const void *, unsigned, unsigned), const void *argument,
                                unsigned blocks, unsigned threads, unsigned long *misaligned) {
    sigjmp_buf here;
    if (sigsetjmp(here, 1) != 0) {
        way_out = nullptr;
        return 1;
    }
    way_out = &here;
    *misaligned = launch(argument, blocks, threads);
    way_out = nullptr;
    return 0;
}

extern "C" void paceline_escape() {
    if (way_out != nullptr)
        siglongjmp(*way_out, 1);
}
