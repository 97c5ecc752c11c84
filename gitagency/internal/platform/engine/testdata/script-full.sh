#!/bin/sh
unset SLURM_JWT
mask=$(umask)
umask 077
name=agency-2
kept=
open=
dir='/shared/my logs'
if [ -f "$dir/$name.job" ] && { true >>"$dir/$name.stdout" && true >>"$dir/$name.stderr"; } 2>/dev/null; then
	exec >>"$dir/$name.stdout" 2>>"$dir/$name.stderr"
	open=yes
fi
if [ -z "$open" ]; then
	kept="/tmp/job-output-$(id -u)"
	mkdir "$kept" 2>/dev/null
	if case $(ls -ldn "$kept" 2>/dev/null) in drwx------*) [ -O "$kept" ] ;; *) false ;; esac && { true >"$kept/$name.stdout" && true >"$kept/$name.stderr"; } 2>/dev/null; then
		exec >>"$kept/$name.stdout" 2>>"$kept/$name.stderr"
	else
		kept=
	fi
fi
umask "$mask"
found=
for program in '/home/it'\''s/tool' tool; do
	case $program in
	*/*) [ -f "$program" ] && [ -x "$program" ] && found=$program ;;
	*) command -v "$program" >/dev/null 2>&1 && found=$program ;;
	esac
	[ -z "$found" ] || break
done
set -- 'a b' '' '$(x)
' @DIR@
if [ -z "$found" ]; then
	echo "$name: no such program on $(hostname): "'/home/it'\''s/tool, tool' >&2
	status=127
elif [ -z "$kept" ]; then
	exec "$found" "$@"
else
	trap : HUP INT TERM XCPU
	"$found" "$@"
	status=$?
fi
if [ -n "$kept" ]; then
	[ ! -e "$kept/$name.readers" ] || sleep 2 # they read the end
	rm -f "$kept/$name.stdout" "$kept/$name.stderr" "$kept/$name.readers"
fi
exit "$status"
