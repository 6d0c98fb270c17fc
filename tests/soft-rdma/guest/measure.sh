# paceline against what else runs on the device. Writes `@value <call> <ranks> <bytes> <library> <microseconds>` lines. The
# host puts ROUNDS, LINKS and MPI in front.
#
# The libraries' ranks are all up and take turns cell by cell: those whose turn it isn't sleep at a pipe.
export PACELINE_LINKS="$LINKS" PACELINE_TIMEOUT=60

# Two ranks have a processor each, whatever the library; more than two share both.
on() {
    if test "$size" = 2; then echo "taskset -c $1"; fi
}

# Makes the pipes of a job: one for each rank's orders, and one for the times that rank 0 tells.
pipes() {
    mkdir -p "/tmp/$1"
    mkfifo "/tmp/$1/times"
    rank=0
    while test $rank -lt "$size"; do
        mkfifo "/tmp/$1/$rank"
        rank=$((rank + 1))
    done
}

# Starts paceline's ranks under this name, with these options.
paceline() {
    job=$1
    shift
    pipes "$job"
    rank=0
    export PACELINE_SIZE=$size PACELINE_RENDEZVOUS=local://$job
    while test $rank -lt "$size"; do
        times=/dev/null
        test $rank = 0 && times=/tmp/$job/times
        PACELINE_RANK=$rank $(on $rank) side_by_side --worker --orders "/tmp/$job" "$@" <>$times 1>&0 &
        rank=$((rank + 1))
    done
}

# UCX's datagrams, by which it connects, get lost over soft-RoCE's IPv4 address; over the first, of IPv6, they arrive.
mpi() {
    pipes "$1"
    binding=none
    test $size = 2 && binding=core
    mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to $binding --mca plm isolated -n "$size" \
        --mca pml ucx --mca btl self --mca osc ^ucx -x UCX_NET_DEVICES=rxe0:1 -x UCX_TLS=rc,ud,self \
        -x UCX_IB_GID_INDEX=0 -x UCX_LOG_LEVEL=error loop --orders "/tmp/$1" </dev/null 3<>"/tmp/$1/times" >&3 &
}

# Tells every rank of a job.
tell() {
    rank=0
    while test $rank -lt "$size"; do
        timeout -s KILL 90 sh -c "echo $2 >/tmp/$1/$rank"
        rank=$((rank + 1))
    done
}

# Runs a cell in a job; the time.
time_of() {
    tell "$1" "$2"
    timeout -s KILL 90 sh -c "read -r word time </tmp/$1/times && test \$word = time && echo \$time"
}

# A column of what one of perftest's programs says; the words are the program and its options.
perftest() {
    column=$1 bytes=$2
    shift 2
    taskset -c 1 timeout -s KILL 60 "$@" -d rxe0 -s "$bytes" >/dev/null 2>&1 &
    server=$!
    sleep 1
    taskset -c 0 timeout -s KILL 60 "$@" -d rxe0 -s "$bytes" 192.168.77.1 2>/dev/null |
        awk -v bytes="$bytes" -v column="$column" '$1 == bytes { print $column }'
    wait $server
}

# Says for each word (`call:type:bytes:iterations`) what it takes in each job.
cells() {
    for cell in "$@"; do
        call=${cell%%:*} bytes=${cell#*:f32:}
        bytes=${bytes%:*}
        for job in $jobs; do
            registered=
            case $job:$call in
            placed:all_reduce | placed:send_recv | placed:one_way) registered=,registered ;;
            placed:*) continue ;;
            esac
            library=paceline
            test "$job" = ucx && library=openmpi+ucx
            time=$(time_of $job "$cell")
            test -n "$time" || continue
            echo "@value $call$registered $size $bytes $library $time"
            # UCX registers what it sends from by itself.
            if test "$job" = ucx && test "$bytes" -ge 65536; then
                echo "@value $call,registered $size $bytes $library $time"
            fi
        done
    done
}

# send_recv: both ranks send at once, which costs a device made of processor time more than turns do.
#
# A cell takes a tenth of a second at least: the programs by which it was ordered, and the one that waits for its time, take
# some milliseconds of its processors when it begins. perftest's programs send as many messages as the others.
SMALL="ping_pong:f32:8:5000 send_recv:f32:8:5000"
MESSAGES="65536:400 262144:100 1048576:25 4194304:6"
SUMS="all_reduce:f32:8:4000 all_reduce:f32:512:4000 all_reduce:f32:4096:1500 all_reduce:f32:32768:300
    all_reduce:f32:262144:50 all_reduce:f32:1048576:15 all_reduce:f32:4194304:4"

for size in 2 4; do
    paceline slots
    paceline placed --registered
    jobs="slots placed"
    if test -n "$MPI"; then
        mpi ucx
        jobs="$jobs ucx"
    fi
    round=0
    while test $round -lt "$ROUNDS"; do
        round=$((round + 1))
        if test $size = 2; then
            time=$(perftest 6 8 ib_write_lat -n 5000)
            echo "$time" | awk '$1 > 0 && $1 < 1e6 { print "@value ping_pong 2 8 ib_write_lat " 2 * $1 }'
            cells $SMALL
            for message in $MESSAGES; do
                bytes=${message%:*} count=${message#*:}
                rate=$(perftest 4 "$bytes" ib_write_bw -n "$count")
                echo "$rate" | awk -v b="$bytes" '$1 > 0 {
                    time = b / $1 / 1.048576
                    print "@value one_way 2 " b " ib_write_bw " time
                    print "@value one_way,registered 2 " b " ib_write_bw " time
                }'
                cells "one_way:f32:$message"
                rate=$(perftest 4 "$bytes" ib_write_bw -b -n "$count")
                echo "$rate" | awk -v b="$bytes" '$1 > 0 {
                    time = 2 * b / $1 / 1.048576
                    print "@value send_recv 2 " b " ib_write_bw,both_ways " time
                    print "@value send_recv,registered 2 " b " ib_write_bw,both_ways " time
                }'
                cells "send_recv:f32:$message"
            done
        fi
        cells $SUMS
    done
    for job in $jobs; do
        tell $job end
    done
    wait
    rm -rf /tmp/slots /tmp/placed /tmp/ucx
done
