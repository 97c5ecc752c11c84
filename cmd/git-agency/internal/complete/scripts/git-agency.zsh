#compdef git-agency
#description many coding agents on one repository, and nothing lost

# zsh completion for "git agency" and "git-agency".
#
# Install it as _git-agency in a directory of $fpath, for example ~/.local/share/zsh/site-functions, or
# put this behind compinit in ~/.zshrc:
#
#     eval "$(git-agency completion zsh)"
#
# Everything offered comes from the tool, which is asked in a way that cannot run a command. Nothing it
# answers is evaluated.

_git-agency () {
  local -a tool line candidates suffix replace match mbegin mend
  local option value answer about shell nul=$'\0'

  # Not the program that was typed, which could be anybody's: the one that is installed.
  tool=(git-agency)
  if [[ $words[1] == agency ]]; then
    # zsh's own _git called us, and has put git's own options into opt_args. There, several values of
    # one option are joined by colons, and backslashes escape the colons of the values themselves.
    tool=(git)
    for option in -C -c --git-dir --work-tree; do
      (( $+opt_args[$option] )) || continue
      for value in "${(@s.:.)opt_args[$option]//(#b)\\(?)/${match[1]/:/$nul}}"; do
        tool+=($option "${${(Q)value//$nul/:}/#\~\//$HOME/}")
      done
    done
    # Where the tool is missing, git would run an alias of its name; an empty one it refuses.
    tool+=(-c alias.agency= agency)
  fi

  line=("${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}")
  for answer in "${(@f)$(command $tool __complete -- "$line[@]" 2>/dev/null)}"; do
    value=${answer%%$'\t'*}
    about=
    if [[ $answer == *$'\t'* ]]; then
      about=${answer#*$'\t'}
    fi
    if [[ $value == */ ]]; then
      suffix=(-S '')
    fi
    if [[ -z $value && $about == replace ]]; then
      replace=(-U)
    elif [[ -n $value ]]; then
      # To _describe, a backslash escapes and a colon separates.
      candidates+=("${${value//\\/\\\\}//:/\\:}${about:+:${about//\\/\\\\}}")
    else
      shell=$about
    fi
  done

  # In --flag=value the shell completes the value alone.
  if [[ -n $shell && $PREFIX == -*=* ]]; then
    compset -P '*='
  fi
  case $shell in
    files)
      _files && return 0
      ;;
    commands)
      _command_names -e && return 0
      ;;
    directories)
      _files -/ && return 0
      ;;
    commits)
      (( $+functions[__git_revisions] )) && __git_revisions && return 0
      ;;
  esac
  (( $#candidates )) || return 1
  # A name is kept until there is only one id to replace it by, or until TAB is pressed again.
  if [[ -n $replace && $#candidates -gt 1 && $compstate[insert] == *unambiguous ]]; then
    compstate[insert]=
    compstate[list]=list
  fi
  if [[ $line[-1] == -* && -z $replace ]]; then
    _describe -o -V -t options option candidates "$suffix[@]"
  else
    _describe -V -t values 'git agency' candidates "$suffix[@]" "$replace[@]"
  fi
}

# As a file of $fpath this is the body of the function. Read by eval it only defines it, and has to
# tell _git, which looks for commands of others in $fpath.
if [[ $funcstack[1] == _git-agency ]]; then
  _git-agency "$@"
elif (( $+functions[compdef] )); then
  compdef _git-agency git-agency
  () {
    local -a others
    zstyle -g others ':completion:*:*:git:*' user-commands
    zstyle ':completion:*:*:git:*' user-commands "${(@)others:#agency:*}" \
      agency:'many coding agents on one repository, and nothing lost'
  }
fi
