#!/bin/bash
# Boot a throw-away copy of this machine once for each check script, in a mount namespace of its own (`unshare --mount`).
#
# boot.sh FOLDER NAME SECONDS BINDS... -- SCRIPTS...
#   FOLDER/lay    files to lay over this machine's own
#   FOLDER/out    what comes back: N.json and N.journal for the N-th script
#   BINDS         --bind-ro=SOURCE:TARGET, for systemd-nspawn
set -eu
folder=$1 name=$2 seconds=$3
shift 3
binds=()
while [ "$1" != -- ]; do binds+=("$1"); shift; done
shift

options=()
if [ ! -d /run/systemd/system ]; then
  # No systemd is here to make a scope for the container: it runs where we are. What it leaves in /run goes with the namespace.
  mount -t tmpfs none /run
  options+=(--keep-unit)
fi

# A control group of our own in each hierarchy, so that nothing of the container stays in this machine's.
groups=() homes=()
leave() {
  for i in "${!groups[@]}"; do
    echo $$ >"${homes[i]}/cgroup.procs" || true
    find "${groups[i]}" -depth -type d -exec rmdir {} + || true
  done
}
trap leave EXIT
memberships=$(</proc/self/cgroup)  # read at once: it changes while we move
while IFS=: read -r _ controllers path; do
  case $controllers in
    name=systemd) mounted=/sys/fs/cgroup/systemd ;;
    cpu | cpuacct | cpu,cpuacct | memory | pids | devices) mounted=/sys/fs/cgroup/$controllers ;;
    "") mounted=/sys/fs/cgroup/unified ;;
    *) continue ;;
  esac
  home=${mounted}${path%/}
  if [ ! -d /run/systemd/system ] && mkdir "$home/$name" 2>/dev/null; then
    groups+=("$home/$name") homes+=("$home")
    echo $$ >"$home/$name/cgroup.procs" || true
  fi
done <<<"$memberships"

space=$folder/space root=$folder/space/root
mkdir -p "$space"
mount -t tmpfs none "$space"
mkdir "$space/upper" "$space/work" "$root"
mount -t overlay none -o "lowerdir=/,upperdir=$space/upper,workdir=$space/work" "$root"

# This machine's own services, mounts and identity are not the copy's.
rm -rf "$root/etc/systemd/system" "$root/etc/fstab" "$root/etc/machine-id" "$root/var/log/journal"
mkdir -p "$root/etc/systemd/system" "$root/var/log/journal"
cp -a "$folder/lay/." "$root/"
tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"

number=0
for script; do
  number=$((number + 1))
  printf 'CHECKS=%s\n' "$script" >"$root/opt/sysperf-checks/script"
  rm -rf "$root/var/log/journal/"*
  timeout --kill-after=5 "$seconds" systemd-nspawn --quiet --directory="$root" --machine="$name" --register=no "${options[@]}" \
    "${binds[@]}" --private-network --console=read-only \
    /opt/sysperf-checks/init systemd.unit=sysperf-checks.target systemd.show_status=no \
    </dev/null >"$folder/out/$number.console" 2>&1 || true
  cp "$root/opt/sysperf-checks/result.json" "$folder/out/$number.json" 2>/dev/null || true
  rm -f "$root/opt/sysperf-checks/result.json"
  journalctl --directory="$root/var/log/journal" --no-pager --output=short-monotonic >"$folder/out/$number.journal" 2>/dev/null || true
done
