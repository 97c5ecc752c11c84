command -v podman >/dev/null 2>&1 || exit 69
found=
for program in /opt/tool; do
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
podman run --detach '--name=agency-1' '--pull=never' '--workdir=/' '--log-driver=k8s-file' '--security-opt=seccomp=unconfined' '--security-opt=label=disable' '--stop-signal=TERM' '--stop-timeout=30' '--security-opt=unmask=ALL' '--http-proxy=false' --hostname "$(uname -n)" "$@"  debian:12  </dev/null
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
case $(podman container inspect --format '{{.State.Status}}' agency-1 2>/dev/null) in
created | configured | initialized) podman rm agency-1 >/dev/null 2>&1 ;;
esac
exit "$status"
