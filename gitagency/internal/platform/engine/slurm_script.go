package engine

import "strings"

// script returns the batch script of a job.
func script(job Job) string {
	text := jobScript
	if job.LogDir == "" {
		text = strings.Replace(text, sharedOutput, "", 1)
	}
	programs := append([]string{job.Argv[0]}, job.Programs...)
	return strings.NewReplacer(
		"@NAME@", shellWord(job.Name), "@DIR@", shellWord(job.LogDir), "@PROGRAMS@", shellWords(programs),
		"@PROGRAM_LIST@", shellWord(strings.Join(programs, ", ")), "@ARGUMENTS@", shellWords(job.Argv[1:]), "@NODE_DIR@", nodeDir, "@CHECK@", checkNodeDir,
	).Replace(text)
}

// jobScript is the script of every job. SLURM_JWT is a credential, which sbatch exports if the user has it.
//
// The program replaces the shell where the LogDir is visible, so that it is the process that Slurm watches. Else the shell
// removes the output when the program has ended; earlier, no file is left of that which Slurm had to kill. That shell
// forwards no signal: Slurm signals all processes of a job, and a trap runs only when the program has ended.
//
// A redirection that fails ends the shell if the command is exec or ":", so "true" tries first.
const jobScript = `#!/bin/sh
unset SLURM_JWT
mask=$(umask)
umask 077
name=@NAME@
kept=
open=
` + sharedOutput + `if [ -z "$open" ]; then
	kept=@NODE_DIR@
	mkdir "$kept" 2>/dev/null
	if @CHECK@ && { true >"$kept/$name.stdout" && true >"$kept/$name.stderr"; } 2>/dev/null; then
		exec >>"$kept/$name.stdout" 2>>"$kept/$name.stderr"
	else
		kept=
	fi
fi
umask "$mask"
` + findProgram + `set -- @ARGUMENTS@
if [ -z "$found" ]; then
	echo "$name: no such program on $(hostname): "@PROGRAM_LIST@ >&2
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
`

// findProgram finds the first program that exists on a machine.
const findProgram = `found=
for program in @PROGRAMS@; do
	case $program in
	*/*) [ -f "$program" ] && [ -x "$program" ] && found=$program ;;
	*) command -v "$program" >/dev/null 2>&1 && found=$program ;;
	esac
	[ -z "$found" ] || break
done
`

// sharedOutput opens the output in the LogDir, if this is the directory in which Submit made the marker.
const sharedOutput = `dir=@DIR@
if [ -f "$dir/$name.job" ] && { true >>"$dir/$name.stdout" && true >>"$dir/$name.stderr"; } 2>/dev/null; then
	exec >>"$dir/$name.stdout" 2>>"$dir/$name.stderr"
	open=yes
fi
`

// nodeDir is the shell word for the directory of a node that holds the output of jobs whose LogDir is not visible there.
const nodeDir = `"/tmp/job-output-$(id -u)"`

// checkNodeDir is a shell command that succeeds if $kept is a private directory of the user, and not a link. Others cannot
// replace it afterwards, since /tmp is sticky.
const checkNodeDir = `case $(ls -ldn "$kept" 2>/dev/null) in drwx------*) [ -O "$kept" ] ;; *) false ;; esac`

// readScript copies the output of a job on its node, in a step of the job: arguments are the name of the job, the stream, the
// first byte to copy, counted from 1, and the option of tail. It exits with noOutput if there is none.
const readScript = `kept=` + nodeDir + `; ` + checkNodeDir + ` || exit 66; [ -f "$kept/$1.$2" ] || exit 66; ` +
	`[ -z "$4" ] || : >>"$kept/$1.readers"; exec tail -c "+$3" $4 "$kept/$1.$2"`

// noOutput is the exit code of readScript where the job has no file (EX_NOINPUT).
const noOutput = 66

// shellWords quotes words for the script.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = shellWord(w)
	}
	return strings.Join(quoted, " ")
}
