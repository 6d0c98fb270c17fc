# One set of ranks on each of two guests, a and b, that are joined by a network: half of every job's ranks here, half there.
# Writes results as Rust's tests do.
links=$PACELINE_TEST_LINKS
port=20000
export PACELINE_LINKS="$links" PACELINE_TIMEOUT=30 PACELINE_INIT_TIMEOUT=60

# Starts this guest's ranks of a job of $1 ranks; what each writes goes to /tmp/rank-$rank.
start() {
    size=$1
    shift
    port=$((port + 1))
    half=$((size / 2))
    if test "$GUEST_NAME" = a; then rank=0 last=$((half - 1)); else rank=$half last=$((size - 1)); fi
    mine=
    while test "$rank" -le "$last"; do
        PACELINE_RANK=$rank PACELINE_SIZE=$size PACELINE_RENDEZVOUS=tcp://192.168.77.1:$port \
            timeout -s KILL 60 "$@" >/tmp/rank-$rank 2>&1 &
        mine="$mine $!:$rank"
        rank=$((rank + 1))
    done
}

# Waits for this guest's ranks, which must all end with status $1 and have written $2; the test's name is the rest.
end() {
    want=$1 words=$2
    shift 2
    result=ok
    for one in $mine; do
        wait "${one%:*}"
        status=$?
        test $status = "$want" || result=FAILED
    done
    grep -q "$words" /tmp/rank-* || test -z "$words" || result=FAILED
    echo "test $* ... $result"
    test $result = ok || tail -n 30 /tmp/rank-*
    rm -f /tmp/rank-*
}

for size in 2 4; do
    start $size worker join calls result
    end 0 "joined.*$links" "every collective between $size ranks on two hosts"
done
# Rank 0 writes the table.
if test "$GUEST_NAME" = a; then checked="# Out of bounds values : 0 OK"; else checked=; fi
for tool in all_reduce_perf sendrecv_perf; do
    start 2 $tool -b 8 -e 1M -f 16 -n 5 -w 1 -c 1
    end 0 "$checked" "$tool between two hosts"
done

export PACELINE_TIMEOUT=3
start 2 worker join churn=30
if test "$GUEST_NAME" = b; then
    tries=0
    until grep -q churning /tmp/rank-1 || test $tries = 300; do
        sleep 0.1
        tries=$((tries + 1))
    done
    ip link set eth0 down
fi
end 3 "^@ error" "a host whose interface goes down is missed"
