command -v docker >/dev/null 2>&1 || exit 69
found=
for program in '/home/it'\''s/tool' tool; do
	case $program in
	*/*) [ -f "$program" ] && [ -x "$program" ] && found=$program ;;
	*) command -v "$program" >/dev/null 2>&1 && found=$program ;;
	esac
	[ -z "$found" ] || break
done
if [ -n "$found" ]; then
	found=$(command -v "$found")
	set -- --mount "type=bind,source=$(readlink -f "$found"),target="/usr/local/bin/tool,readonly --entrypoint /usr/local/bin/tool
else
	set -- --entrypoint tool
fi
docker run --detach '--name=agency-2' '--pull=never' '--workdir=/' '--log-driver=local' '--security-opt=seccomp=unconfined' '--security-opt=label=disable' '--stop-signal=TERM' '--stop-timeout=30' '--security-opt=apparmor=unconfined' '--security-opt=systempaths=unconfined' '--mount=type=bind,source=/srv/my hub,target=/srv/my hub' '--mount=type=volume,source=cache,target=/var/lib/cache' '--mount=type=bind,source=/etc/it'\''s,target=/etc/it'\''s,readonly' --hostname "$(uname -n)" "$@" '--network=host' '--env=A=b c' debian:12 'a b' '' '$(x)
' @NAME@ </dev/null
status=$?
[ "$status" -ne 0 ] || exit 0
if [ "$status" -eq 127 ]; then
	status=1 # of ssh, 127 means that the client is missing
	if [ -n "$found" ]; then
		echo "$found cannot be started in the container: it has to be linked statically, or the image needs its libraries" >&2
	else
		echo "there is no program "tool" on $(uname -n), and none in the image" >&2
	fi
fi
case $(docker container inspect --format '{{.State.Status}}' agency-2 2>/dev/null) in
created | configured | initialized) docker rm agency-2 >/dev/null 2>&1 ;;
esac
exit "$status"
