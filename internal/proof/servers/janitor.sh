# Cleans up after a server: sh -c SCRIPT janitor DIRECTORY. It waits until its
# standard input ends, which it does when the process that started the server
# closes it or dies, however it dies.
dir=$1
cat >/dev/null

# All processes of the server work below data. PostgreSQL's children are in
# their own sessions, and end by themselves unless they are stopped.
tries=200
while pids=$(find /proc -maxdepth 2 -name cwd -lname "$dir/data*" -printf '%h\n' 2>/dev/null); [ -n "$pids" ]; do
	tries=$((tries - 1))
	[ "$tries" -gt 0 ] || exit 1
	for p in $pids; do kill -KILL "${p#/proc/}" 2>/dev/null; done
	sleep 0.02
done

# A killed PostgreSQL leaves its segment of shared memory, which is named on the
# seventh line of this file.
if [ -f "$dir/data/postmaster.pid" ]; then
	id=$(sed -n '7s/^ *[0-9][0-9]* *\([0-9][0-9]*\) *$/\1/p' "$dir/data/postmaster.pid")
	[ -z "$id" ] || ipcrm -m "$id" 2>/dev/null
fi
if grep -qF " $dir/data " /proc/mounts; then umount -l "$dir/data"; fi
rm -rf "$dir"
