# fish completion for "git agency" and "git-agency".
#
# Install it as git-agency.fish in a conf.d directory, for example ~/.config/fish/conf.d: what lies in a
# completions directory is not read before "git-agency" itself is completed, so that "git agency" would
# get nothing.
#
# Everything offered comes from the tool, which is asked in a way that cannot run a command. Nothing it
# answers is evaluated.

# Offers what could stand at the cursor, in a line that begins with git-agency or, with "git" as
# argument, with git and its options.
function __git_agency_complete
    set -l tokens (commandline -opc)
    set -l current (commandline -ct)
    set -e tokens[1]
    # Not the program that was typed, which could be anybody's: the one that is installed.
    set -l tool git-agency
    if test "$argv" = git
        set -l options
        set -l expansion
        while set -q tokens[1]
            switch $tokens[1]
                case -C -c --git-dir --work-tree --namespace
                    set -l value "$tokens[2]"
                    if string match -q '~/*' -- $value
                        set value $HOME/(string sub -s 3 -- $value)
                    end
                    set -a options $tokens[1] $value
                    set -e tokens[1]
                case '--git-dir=*' '--work-tree=*' '--namespace=*' --bare
                    set -a options $tokens[1]
                case '-*'
                case '*'
                    break
            end
            set -e tokens[1]
        end
        # An alias such as "ags = agency start" stands for words that are not on the line.
        if test "$tokens[1]" != agency
            set expansion (command git $options config --get alias.$tokens[1] 2>/dev/null | string split -n ' ')
        end
        set tokens $expansion[2..] $tokens[2..]
        # Where the tool is missing, git would run an alias of its name; an empty one it refuses.
        set tool git $options -c alias.agency= agency
    end
    command -sq $tool[1]; or return

    # In --flag=value the shell completes the value alone.
    set -l flag (string match -r -- '^-[^=]*=' "$current"; or echo)
    set -l value (string sub -s (math (string length -- "$flag") + 1) -- "$current")
    # An open quote cannot be undone; then the tool sees the word as it was typed.
    set -l typed (string unescape -- "$current" 2>/dev/null; or printf '%s\n' "$current")
    for answer in (command $tool __complete -- $tokens "$typed" 2>/dev/null)
        switch $answer
            case \tfiles
                printf '%s\n' "$flag"(__fish_complete_path "$value")
            case \tcommands
                __fish_complete_command
            case \tdirectories
                printf '%s\n' "$flag"(__fish_complete_directories "$value" '')
            case \tcommits
                if type -q __fish_git_refs
                    printf '%s\n' "$flag"(__fish_git_refs)
                end
            case \treplace
                # fish looks for the word in the descriptions, too, and there finds the names.
            case '*'
                printf '%s\n' $answer
        end
    end
end

complete -c git-agency -f -a '(__git_agency_complete)'
# These conditions come with fish's own completion of git.
complete -c git -f -n 'type -q __fish_git_needs_command; and __fish_git_needs_command' -a agency -d 'Many coding agents on one repository'
complete -c git -f -n 'type -q __fish_git_using_command; and __fish_git_using_command agency' -a '(__git_agency_complete git)'
