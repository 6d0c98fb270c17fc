# paceline against what else runs on the device, in rounds, so that a disturbance meets all. Writes
# `@value <call> <ranks> <bytes> <library> <microseconds>` lines. The host puts ROUNDS and LINKS in front.
export PACELINE_LINKS="$LINKS" PACELINE_TIMEOUT=60
job=0

# Two ranks have a processor each, whatever the library; more than two share both.
on() {
    if test "$size" = 2; then echo "taskset -c $1"; fi
}

# Runs $1 ranks of a program of paceline's; rank 0's output.
ranks() {
    size=$1 rank=1
    shift
    job=$((job + 1))
    export PACELINE_SIZE=$size PACELINE_RENDEZVOUS=local://measure-$job
    while test $rank -lt "$size"; do
        PACELINE_RANK=$rank $(on $rank) timeout -s KILL 90 "$@" >/dev/null 2>/tmp/complaints-$rank &
        rank=$((rank + 1))
    done
    PACELINE_RANK=0 $(on 0) timeout -s KILL 90 "$@" 2>/tmp/complaints-0
    wait
    cat /tmp/complaints-* >&2
}

# A column of what one of perftest's programs says; the words are the program and its options.
perftest() {
    column=$1 bytes=$2
    shift 2
    taskset -c 1 timeout -s KILL 60 "$@" -d rxe0 -s "$bytes" >/dev/null 2>&1 &
    sleep 1
    taskset -c 0 timeout -s KILL 60 "$@" -d rxe0 -s "$bytes" 192.168.77.1 2>/dev/null |
        awk -v bytes="$bytes" -v column="$column" '$1 == bytes { print $column }'
    wait
}

# UCX's datagrams, by which it connects, get lost over soft-RoCE's IPv4 address; over the first, of IPv6, they arrive.
mpi() {
    size=$1
    shift
    binding=none
    test $size = 2 && binding=core
    timeout -s KILL 90 mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to $binding --mca plm isolated -n "$size" \
        --mca pml ucx --mca btl self --mca osc ^ucx -x UCX_NET_DEVICES=rxe0:1 -x UCX_TLS=rc,ud,self \
        -x UCX_IB_GID_INDEX=0 -x UCX_LOG_LEVEL=error "$@"
}

# Pairs the times that a loop wrote with the cells that it was given.
pair() {
    size=$1 library=$2
    shift 2
    for cell in "$@"; do
        read -r word time || return
        test "$word" = time || continue
        bytes=${cell#*:f32:}
        echo "@value ${cell%%:*} $size ${bytes%:*} $library $time"
        case $library:$cell in
        # UCX registers what it sends from by itself.
        openmpi*:all_reduce:f32:[0-9][0-9][0-9][0-9][0-9][0-9]*)
            echo "@value all_reduce,registered $size ${bytes%:*} $library $time" ;;
        esac
    done
}

# send_recv: both ranks send at once, which costs a device made of processor time more than turns do.
MESSAGES="ping_pong:f32:8:500 send_recv:f32:8:500 one_way:f32:65536:200 one_way:f32:262144:60 one_way:f32:1048576:20
    one_way:f32:4194304:6 send_recv:f32:65536:100 send_recv:f32:262144:30 send_recv:f32:1048576:10
    send_recv:f32:4194304:3"
SUMS="all_reduce:f32:8:200 all_reduce:f32:512:200 all_reduce:f32:4096:100 all_reduce:f32:32768:40 all_reduce:f32:262144:8
    all_reduce:f32:1048576:3 all_reduce:f32:4194304:2"

round=0
while test $round -lt "$ROUNDS"; do
    round=$((round + 1))
    for pair in 65536:200 262144:60 1048576:20 4194304:6; do
        bytes=${pair%:*} count=${pair#*:}
        rate=$(perftest 4 "$bytes" ib_write_bw -n "$count")
        echo "$rate" | awk -v b="$bytes" '$1 > 0 { print "@value one_way 2 " b " ib_write_bw " b / $1 / 1.048576 }'
        rate=$(perftest 4 "$bytes" ib_write_bw -b -n "$count")
        echo "$rate" | awk -v b="$bytes" '$1 > 0 {
            time = 2 * b / $1 / 1.048576
            print "@value sendrecv 2 " b " ib_write_bw,both_ways " time
            print "@value sendrecv,registered 2 " b " ib_write_bw,both_ways " time
        }'
        for registered in 0 1; do
            ranks 2 sendrecv_perf -b "$bytes" -e "$bytes" -n "$count" -w 20 -c 0 -R $registered |
                awk -v b="$bytes" -v r=$registered '$1 == b { print "@value sendrecv" (r ? ",registered" : "") " 2 " b " paceline " $6 }'
        done
    done
    perftest 6 8 ib_write_lat -n 2000 | awk '{ print "@value ping_pong 2 8 ib_write_lat " 2 * $1 }'
    ranks 2 sendrecv_perf -b 8 -e 8 -n 2000 -w 50 -c 0 | awk '$1 == 8 { print "@value sendrecv 2 8 paceline " $6 }'
    for size in 2 4; do
        cells=$SUMS
        test $size = 2 && cells="$MESSAGES $SUMS"
        ranks $size side_by_side --worker $cells >/tmp/times
        pair $size paceline $cells </tmp/times
        for pair in 262144:8 1048576:3 4194304:2; do
            bytes=${pair%:*}
            ranks $size all_reduce_perf -b "$bytes" -e "$bytes" -n "${pair#*:}" -w 20 -c 0 -R 1 |
                awk -v b="$bytes" -v s="$size" '$1 == b { print "@value all_reduce,registered " s " " b " paceline " $6 }'
        done
        if test -n "$MPI"; then
            mpi $size loop $cells >/tmp/times
            pair $size openmpi+ucx $cells </tmp/times
        fi
    done
done
