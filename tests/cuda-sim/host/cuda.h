// CUDA for the host's compiler: what the kernels use of the language, as plain C++ in one file.
//
// A launch runs on the thread that makes it, one block after the other. A block's threads are fibers: each runs until it
// ends, waits at a barrier, or looks at a flag in vain and lets the others run. That is enough for kernels in which a block
// waits for the same block of other launches only: with all launches under way at the same time, each on a thread of its
// own, the first block of all comes to its end, then the second, and so on.
#pragma once

#include <sched.h>
#include <setjmp.h>
#include <time.h>
#include <ucontext.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#define PACELINE_HOST 1

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(threads)
#define __forceinline__ inline __attribute__((always_inline))
// A thread has one block at a time.
#define __shared__ static thread_local

struct Dim {
    unsigned x, y, z;
};

// Not static: the compiler must not think that only what it sees changes them, and not when a thread is switched to.
#define PACELINE_HIDDEN __attribute__((visibility("hidden")))
PACELINE_HIDDEN inline thread_local Dim blockIdx, blockDim, gridDim, threadIdx;

template <class To, class From> static inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "only the type changes");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

static inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
static inline unsigned __float_as_uint(float number) { return same_bits<unsigned>(number); }
static inline double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
static inline long long __double_as_longlong(double number) { return same_bits<long long>(number); }

#ifdef __SANITIZE_THREAD__
extern "C" void *__tsan_get_current_fiber();
extern "C" void *__tsan_create_fiber(unsigned flags);
extern "C" void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#endif

enum class State { RUNS, LOOKS, AT_BARRIER, ENDED };

// A stack, and what runs on it until it is switched away from. Switching saves no signal mask, which would be a system
// call: only the first entry of a stack is one.
struct Fiber {
    static const size_t STACK_BYTES = 256 << 10;

    State state;
    void (*body)(const void *);
    const void *argument;
    bool entered = false;
    char *stack;
    ucontext_t first;
    jmp_buf here, back;
#ifdef __SANITIZE_THREAD__
    void *known = __tsan_create_fiber(0);
    void *caller;
    ucontext_t caller_context;
#endif

    Fiber() : stack((char *)malloc(STACK_BYTES)) {
        if (stack == nullptr || getcontext(&first) != 0)
            abort();
        first.uc_stack.ss_sp = stack;
        first.uc_stack.ss_size = STACK_BYTES;
        first.uc_link = nullptr;
        const unsigned long self = (unsigned long)this;
        makecontext(&first, (void (*)())entry, 2, (unsigned)self, (unsigned)(self >> 32));
    }
    Fiber(const Fiber &) = delete;
    ~Fiber() { free(stack); }

    static void entry(unsigned low, unsigned high) {
        Fiber &self = *(Fiber *)((unsigned long)high << 32 | low);
        for (;;) {
            self.body(self.argument);
            self.leave(State::ENDED);
        }
    }

#ifdef __SANITIZE_THREAD__
    // The sanitizer has to be told, and takes jumps between stacks for something else.
    void enter() {
        state = State::RUNS;
        caller = __tsan_get_current_fiber();
        __tsan_switch_to_fiber(known, 0);
        swapcontext(&caller_context, &first);
    }
    void leave(State next) {
        state = next;
        __tsan_switch_to_fiber(caller, 0);
        swapcontext(&first, &caller_context);
    }
#else
    void enter() {
        state = State::RUNS;
        if (_setjmp(back) != 0)
            return;
        if (entered)
            _longjmp(here, 1);
        entered = true;
        setcontext(&first);
    }
    void leave(State next) {
        state = next;
        if (_setjmp(here) == 0)
            _longjmp(back, 1);
        asm volatile("" : : : "memory");
    }
#endif
};

// The block that this thread runs.
struct Block {
    std::vector<Fiber *> fibers, idle;
    Fiber *running = nullptr;
    // What the threads at the barrier have said so far, and what they had said at the last one.
    bool so_far = true, agreed = true;

    ~Block() {
        for (Fiber *fiber : idle)
            delete fiber;
    }

    void run(unsigned threads, void (*body)(const void *), const void *argument) {
        fibers.assign(threads, nullptr);
        so_far = true;
        unsigned started = 0, ended = 0;
        while (ended < threads) {
            unsigned waiting = 0;
            bool moved = false;
            for (unsigned thread = 0; thread < threads; thread++) {
                if (thread == started) {
                    fibers[thread] = fresh(body, argument);
                    started++;
                }
                Fiber *const fiber = fibers[thread];
                if (fiber == nullptr)
                    continue;
                if (fiber->state != State::AT_BARRIER) {
                    threadIdx = {thread, 0, 0};
                    running = fiber;
                    fiber->enter();
                    moved = moved || fiber->state != State::LOOKS;
                }
                if (fiber->state == State::ENDED) {
                    idle.push_back(fiber);
                    fibers[thread] = nullptr;
                    ended++;
                }
                waiting += fiber->state == State::AT_BARRIER;
            }
            if (waiting > 0 && waiting + ended == threads)
                release();
            else if (!moved)
                sched_yield();
        }
    }

    bool meet(bool says) {
        so_far = so_far && says;
        running->leave(State::AT_BARRIER);
        return agreed;
    }

  private:
    Fiber *fresh(void (*body)(const void *), const void *argument) {
        if (idle.empty())
            idle.push_back(new Fiber);
        Fiber *const fiber = idle.back();
        idle.pop_back();
        fiber->state = State::RUNS;
        fiber->body = body;
        fiber->argument = argument;
        return fiber;
    }

    void release() {
        for (Fiber *fiber : fibers)
            if (fiber != nullptr)
                fiber->state = State::RUNS;
        agreed = so_far;
        so_far = true;
    }
};

PACELINE_HIDDEN inline thread_local Block block;

// A barrier for the threads that have not ended, as on a GPU.
static inline bool __syncthreads_and(int says) { return block.meet(says != 0); }
static inline void __syncthreads() { block.meet(true); }

// What system.cuh has as PTX.
static inline unsigned long long load_acquire(const unsigned long long *from) {
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
static inline void store_release(unsigned long long *to, unsigned long long value) {
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
}
static inline unsigned load_relaxed(const unsigned *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
static inline unsigned count_one(unsigned *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL); }
static inline bool claim(unsigned *word) {
    unsigned before = 0;
    return __atomic_compare_exchange_n(word, &before, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
static inline unsigned long long now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}
static inline void sleep_ns(unsigned) {}
static inline void relax() { block.running->leave(State::LOOKS); }

// How many addresses were used that the type at them may not have: a GPU would end the launch there.
extern "C" unsigned long paceline_misaligned_taken();

template <class Kernel> struct Launched {
    Kernel *kernel;
    const void *given;
};

template <class Given>
static inline unsigned long launched(void (*kernel)(Given), const void *given, unsigned blocks, unsigned threads) {
    typedef Launched<void(Given)> Call;
    const Call call = {kernel, given};
    void (*const body)(const void *) = [](const void *argument) {
        const Call &call = *(const Call *)argument;
        call.kernel(*(const Given *)call.given);
    };
    gridDim = {blocks, 1, 1};
    blockDim = {threads, 1, 1};
    for (unsigned number = 0; number < blocks; number++) {
        blockIdx = {number, 0, 0};
        block.run(threads, body, &call);
    }
    return paceline_misaligned_taken();
}

template <class Given> constexpr unsigned long size_of_given(void (*)(Given)) { return sizeof(Given); }

// For a kernel: `launch_<name>(argument, blocks, threads)`, which returns how many addresses were misaligned, and
// `size_<name>`, the bytes of the argument.
#define PACELINE_LAUNCH(name)                                                                               \
    extern "C" unsigned long launch_##name(const void *given, unsigned blocks, unsigned threads) {         \
        return launched(name, given, blocks, threads);                                                     \
    }                                                                                                      \
    extern "C" {                                                                                           \
    extern const unsigned long size_##name;                                                                \
    const unsigned long size_##name = size_of_given(name);                                                 \
    }
