# bash completion for "git agency" and "git-agency".
#
# Install it as git-agency in a directory of bash-completion, for example
# ~/.local/share/bash-completion/completions, or put this into ~/.bashrc:
#
#     eval "$(git-agency completion bash)"
#
# It does not matter whether git's own completion is loaded before or after. Everything offered comes
# from the tool, which is asked in a way that cannot run a command. Nothing it answers is evaluated.

# _git_agency is what git's own completion calls for "git agency". It finds the words of the line in
# cur, words and cword, the place of "agency" in __git_cmd_idx, and git's own -C and --git-dir in
# __git_C_args and __git_dir.
_git_agency ()
{
	local i quote from name=${words[__git_cmd_idx]}
	local -a options=() expansion=() line=() before=("${words[@]:__git_cmd_idx + 1:cword - __git_cmd_idx - 1}")

	for ((i = 1; i < ${#__git_C_args[@]}; i += 2)); do
		__git_agency_split "${__git_C_args[i]}"
		options+=(-C "${line[0]}")
	done
	if [[ -n ${__git_dir-} ]]; then
		__git_agency_split "$__git_dir"
		options+=(--git-dir "${line[0]}")
	fi
	for ((i = 1; i + 1 < __git_cmd_idx; i++)); do
		if [[ ${words[i]} == -c ]]; then
			__git_agency_split "${words[i + 1]}"
			options+=(-c "${line[0]}")
		fi
	done
	for ((i = 0; i < ${#options[@]}; i++)); do
		if [[ ${options[i]} == '~/'* ]]; then
			options[i]=$HOME/${options[i]:2}
		fi
	done

	# An alias such as "ags = agency start" stands for words that are not on the line. Git's completion
	# has put what it found for the alias into words[1].
	if ((__git_cmd_idx == 1)); then
		name=${COMP_WORDS[1]}
	fi
	if [[ $name != agency ]]; then
		IFS=$' \t\n' read -r -a expansion < <(git ${options[@]+"${options[@]}"} config --get "alias.$name" 2>/dev/null)
		if [[ ${expansion[0]-} == agency ]]; then
			before=("${expansion[@]:1}" ${before[@]+"${before[@]}"})
		fi
	fi

	__git_agency_split "$cur"
	line=(${before[@]+"${before[@]}"} "${line[0]}")
	# Where the tool is missing, git would run an alias of its name; an empty one it refuses.
	__git_agency_reply git ${options[@]+"${options[@]}"} -c alias.agency= agency
}

# __git_agency_main completes the plain word "git-agency".
__git_agency_main ()
{
	local quote from
	local -a line=()
	__git_agency_split "${COMP_LINE:0:COMP_POINT}"
	line=("${line[@]:1}")
	# Not the program that was typed, which could be anybody's: the one that is installed.
	__git_agency_reply git-agency
}

# __git_agency_split <text> splits text into line, the words the shell would make of it. The last is
# the one at the cursor, perhaps empty. Of that one, quote is the quote that is still open, and from is
# where the part begins that readline is going to replace: it breaks words at = and :, too.
__git_agency_split ()
{
	local text=$1 word= seen= c i outer
	line=() quote= from=0
	for ((i = 0; i < ${#text}; i++)); do
		c=${text:i:1}
		if [[ -n $quote ]]; then
			if [[ $c == "$quote" ]]; then
				quote= from=$outer
				continue
			fi
			if [[ $quote == '"' && $c == \\ && ${text:i + 1:1} == [\\\"\$\`] ]]; then
				((++i))
				c=${text:i:1}
			fi
			word+=$c
			continue
		fi
		case $c in
		[[:space:]])
			if [[ -n $seen ]]; then
				line+=("$word")
			fi
			word= seen= from=0
			continue
			;;
		\' | \")
			quote=$c outer=$from from=${#word}
			;;
		\\)
			((++i))
			word+=${text:i:1}
			;;
		*)
			word+=$c
			if [[ $c == [=:] && ${COMP_WORDBREAKS-} == *"$c"* ]]; then
				from=${#word}
			fi
			;;
		esac
		seen=1
	done
	line+=("$word")
}

# __git_agency_reply <tool>... asks the tool about line, and puts what fits the last word into COMPREPLY.
__git_agency_reply ()
{
	local answer value about shell= replace= width=0 i
	local word=${line[${#line[@]} - 1]}
	local -a values=() abouts=()

	while IFS= read -r answer; do
		value=${answer%%$'\t'*} about=
		if [[ $answer == *$'\t'* ]]; then
			about=${answer#*$'\t'}
		fi
		if [[ -z $value && $about == replace ]]; then
			replace=1
		elif [[ -z $value ]]; then
			shell=$about
		elif [[ $value == "$word"* || (-n $replace && ${value:0:from} == "${word:0:from}") ]]; then
			values+=("$value")
			abouts+=("$about")
		fi
	done < <("$@" __complete -- "${line[@]}" 2>/dev/null)

	# What is run is run by no shell, so that only programs count.
	if [[ $shell == commands && $word != */* ]]; then
		while IFS= read -r value; do
			if type -P -- "$value" >/dev/null; then
				values+=("$value")
				abouts+=("")
			fi
		done < <(compgen -c -- "$word" | sort -u)
	fi

	COMPREPLY=()
	for ((i = 0; i < ${#values[@]}; i++)); do
		value=${values[i]:from}
		case $quote in
		\')
			value=${value//\'/\'\\\'\'}
			;;
		\")
			value=${value//\\/\\\\}
			value=${value//\"/\\\"}
			value=${value//\$/\\\$}
			value=${value//\`/\\\`}
			;;
		*)
			printf -v value '%q ' "$value"
			value=${value/%'/ '//}
			;;
		esac
		COMPREPLY+=("$value")
		if ((${#value} > width)); then
			width=${#value}
		fi
	done

	# A list that is only looked at, or of which only the common beginning is taken, has room for more.
	case ${COMP_TYPE-} in
	33 | 63 | 64)
		for ((i = 0; i < ${#values[@]} && ${#values[@]} > 1; i++)); do
			printf -v value '%-*s %s' "$width" "${COMPREPLY[i]}" "${abouts[i]}"
			COMPREPLY[i]=${value:0:${COLUMNS:-80} - 2}
		done
		;;
	esac

	# Readline would replace a name by what several ids have in common. It keeps the word if they have
	# nothing in common.
	if [[ -n $replace && ${COMP_TYPE-} != 37 ]] && ((${#values[@]} > 1)); then
		COMPREPLY+=(' ')
	fi

	# Without candidates bash would offer files, also where none can be meant.
	case $shell in
	files)
		;;
	commands)
		if [[ $word != */* ]]; then
			compopt +o default +o bashdefault 2>/dev/null
		fi
		;;
	directories)
		compopt -o dirnames +o default +o bashdefault 2>/dev/null
		;;
	commits)
		compopt +o default +o bashdefault 2>/dev/null
		if declare -F __git_complete_refs >/dev/null; then
			value=$word
			if [[ $word == -*=* ]]; then
				value=${word#*=}
			fi
			word=${word:from}
			__git_complete_refs --cur="$value" --pfx="${word%"$value"}"
		fi
		;;
	*)
		compopt +o default +o bashdefault 2>/dev/null
		;;
	esac
}

complete -o bashdefault -o default -o nospace -F __git_agency_main git-agency 2>/dev/null ||
	complete -o default -o nospace -F __git_agency_main git-agency
