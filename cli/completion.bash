# Bash completion for lockstep. It asks the program itself (--help), so that it never falls behind.
_lockstep() {
    local word=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} command=${COMP_WORDS[1]} words i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        words=$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$words --help --version" -- "$word")
        return
    fi
    if [[ $command == run ]]; then # what follows the program is the program's
        for ((i = 2; i < COMP_CWORD; i++)); do
            [[ ${COMP_WORDS[i]} == -- ]] && { compopt -o default; return; }
        done
    fi
    if [[ $command == bench || $command == data ]] && ((COMP_CWORD == 2)) && [[ $word != -* ]]; then # they have words of their own
        words=$("$program" "$command" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
    fi
    if [[ $word == -* ]]; then
        local of=("$command")
        [[ $command == bench || $command == data ]] && ((COMP_CWORD > 2)) && of+=("${COMP_WORDS[2]}")
        words=$("$program" "${of[@]}" --help 2>/dev/null | grep -oE -- '(^|[ ,])--?[a-z][a-z_-]*' | tr -d ' ,' | grep -v _ | sort -u)
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
    fi
    compopt -o default 2>/dev/null
}
complete -F _lockstep lockstep
