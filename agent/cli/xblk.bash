# Completion of xblk for bash.
_xblk() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]:-} words
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="doctor plan run report compare restore emu vbd --help --version"
  else
    case $command in
      plan) words="--json --list-policies --schema --repeats --seed --platform --help" ;;
      run) words="--resume --overwrite --out --json --repeats --seed --platform --fio --no-progress --help" ;;
      report) words="--csv --json --markdown --html --junit --help" ;;
      compare) words="--by --threshold --gate-latency --json --junit --html --help" ;;
      restore) words="--list --help" ;;
      emu) words="up down status env --dir --guests --store --overwrite --grant-locks --guest --help" ;;
      vbd) words="list show --dir --guest --device --help" ;;
      doctor) words="--json --help" ;;
    esac
  fi
  # The parameters that points can differ in are those that the program knows.
  if [ "${COMP_WORDS[COMP_CWORD - 1]}" = --by ]; then
    mapfile -t COMPREPLY < <(compgen -S = -W "$(xblk plan --list-policies 2>/dev/null | sed -n 's/^\([a-z-]*\)  (.*/\1/p')" -- "$word")
    compopt -o nospace
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  case $command in
    doctor | plan | run | report | compare) [[ $word == -* ]] || mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word") ;;
  esac
}
complete -o filenames -F _xblk xblk
