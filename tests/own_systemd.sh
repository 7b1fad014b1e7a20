#!/bin/sh
# own_systemd.sh COMMAND...: run it beside a live systemd user manager of its own (root).
# Call it in a mount namespace: unshare --mount sh tests/own_systemd.sh COMMAND...
set -eu
mount --make-rprivate /
mount -t tmpfs run /run
uid=$(id -u)
mkdir -p /run/systemd/system "/run/user/$uid"
chmod 700 "/run/user/$uid"
export XDG_RUNTIME_DIR="/run/user/$uid"

# A manager takes the cgroup that it is started in for its own, and moves all in it about: it gets one of its
# own in every hierarchy, under the name that it has where systemd runs the machine (units are told by it).
name="user.slice/user-$uid.slice/user@$uid.service"
for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [ -w "$tree/cgroup.procs" ] && mkdir -p "$tree/$name" || continue
done
enter='
for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [ ! -d "$tree/$1" ] || echo $$ >"$tree/$1/cgroup.procs" || true
done 2>/dev/null
grep -E "^(0::|[0-9]+:name=systemd:)" /proc/self/cgroup | grep -vq "/$1\$" && exit 1
exec /lib/systemd/systemd --user --unit=basic.target'

sh -c "$enter" sh "$name" &
manager=$!
clear_away() {
    kill -TERM "$manager" 2>/dev/null && wait "$manager" || true
    find /sys/fs/cgroup/user.slice /sys/fs/cgroup/*/user.slice -depth -type d -exec rmdir {} + 2>/dev/null || true
}
trap clear_away EXIT
for _ in $(seq 100); do
    systemctl --user is-system-running 2>/dev/null | grep -q running && break
    kill -0 "$manager" 2>/dev/null || { echo "no cgroup of its own for a systemd manager" >&2; exit 1; }
    sleep 0.1
done
"$@"
