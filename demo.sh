#!/usr/bin/env bash
# Shows Penstock at work: builds it, searches this machine's own header files with penstock-grep and
# checks the result against grep; then makes a collage of one photograph from others with
# penstock-collage, in two ways that must agree. Says what the page cache did. Installs missing
# Debian packages first. Needs nothing else.
#
#   ./demo.sh [FOLDER...]      searches other folders than /usr/include
#
# The photographs are those of the Debian package lomiri-wallpapers-16.04 (16 MB);
# PENSTOCK_DEMO_PICTURES names a folder of others, two or more of at least 400 by 300 pixels; the
# first becomes the collage.
#
# The last line says OK; anything else, and a status other than 0, means that something is wrong.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folders=("${@:-/usr/include}")
for i in "${!folders[@]}"; do folders[i]=$(cd "${folders[i]}" && pwd -P); done
if [ -n "${PENSTOCK_DEMO_PICTURES:-}" ]; then
    PENSTOCK_DEMO_PICTURES=$(cd "$PENSTOCK_DEMO_PICTURES" && pwd -P)
fi
cd "$root"
photographs=lomiri-wallpapers-16.04
if [ -n "${PENSTOCK_DEMO_PICTURES:-}" ]; then
    bash tools/install_packages.sh
else
    bash tools/install_packages.sh "$photographs"
fi
. tools/common.sh
export LC_ALL=C

say "Building into $build_dir"
configure_main
build "$build_dir" --target penstock-grep penstock-collage
program=$build_dir/bin/penstock-grep

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say "Making a dictionary of words that occur in ${folders[*]}"
# Every check below rests on this: all words of all files, as grep sees them, each on a line of its
# own as "path:word".
grep -r -o -w -I -E '[A-Za-z_][A-Za-z0-9_]*' "${folders[@]}" >"$work/occurrences" || [ $? -eq 1 ]
sed 's/.*://' "$work/occurrences" | sort -u |
    awk 'length($0) >= 4 && length($0) <= 31' >"$work/words"
if [ ! -s "$work/words" ]; then
    echo "no word of 4 to 31 letters in ${folders[*]}; name a folder of text files"
    exit 1
fi
every=$(($(wc -l <"$work/words") / 5000 + 1))
awk -v every="$every" 'NR % every == 0' "$work/words" >"$work/dictionary"
# Files with a zero byte are binary to grep, which then counts differently; they stay out of the
# comparison.
grep -r -l -a -P '\x00' "${folders[@]}" >"$work/binary" || true
echo "$(wc -l <"$work/dictionary") words, taken from $(wc -l <"$work/words");" \
    "$(wc -l <"$work/binary") binary files left out of the check"

say "penstock-grep over ${folders[*]}"
# A cache smaller than the files, so that it has to choose what to keep.
cache=(--cache 16MiB --page 16KiB)
"$program" --dict "$work/dictionary" "${cache[@]}" --json --out "$work/counts" "${folders[@]}" \
    >"$work/report.json"
python3 tools/demo_report.py "$work/report.json"
head -3 "$work/counts"
echo "... $(wc -l <"$work/counts") lines: word, path, count"

say "Checking against grep"
# Every word of the dictionary in every file: grep listed the words above, counted here by path and
# word.
awk -v dictionary="$work/dictionary" '
    BEGIN { while ((getline word < dictionary) > 0) wanted[word] = 1 }
    {
        at = match($0, /:[A-Za-z0-9_]*$/)
        word = substr($0, at + 1)
        if (word in wanted) ++count[word "\t" substr($0, 1, at - 1)]
    }
    END { for (key in count) print key "\t" count[key] }' "$work/occurrences" |
    sort -t "$(printf '\t')" -k2,2 -k1,1 >"$work/expected"
awk -F '\t' -v binary="$work/binary" '
    BEGIN { while ((getline path < binary) > 0) left_out[path] = 1 }
    !($2 in left_out)' "$work/counts" >"$work/compared"
if ! cmp -s "$work/expected" "$work/compared"; then
    diff "$work/expected" "$work/compared" | head -20
    echo "DIFFERENT: penstock-grep and grep disagree ('<' is grep)"
    exit 1
fi
echo "all $(wc -l <"$work/expected") counts of $(wc -l <"$work/dictionary") words are grep's"
# And a few words the plain way, one grep for each.
awk 'NR % 500 == 1' "$work/dictionary" | while read -r word; do
    grep -r -o -w -F -I -- "$word" "${folders[@]}" | awk -v word="$word" '
        { path = substr($0, 1, length($0) - length(word) - 1); ++count[path] }
        END { for (path in count) print word "\t" path "\t" count[path] }' |
        sort -t "$(printf '\t')" -k2,2 >"$work/one"
    awk -F '\t' -v word="$word" '$1 == word' "$work/compared" >"$work/ours"
    if ! cmp -s "$work/one" "$work/ours"; then
        diff "$work/one" "$work/ours" | head -5
        echo "DIFFERENT: $word"
        exit 1
    fi
done
echo "and so are $(awk 'NR % 500 == 1' "$work/dictionary" | wc -l) words asked of grep one by one"

say "A collage of one photograph from the others"
mkdir "$work/pictures"
if [ -n "${PENSTOCK_DEMO_PICTURES:-}" ]; then
    find "$PENSTOCK_DEMO_PICTURES" -maxdepth 1 -type f -exec cp {} "$work/pictures" \;
else
    dpkg -L "$photographs" | grep -E '\.(jpg|png)$' | while read -r file; do
        cp "$file" "$work/pictures"
    done
fi
# A landscape, if it is there; else the first.
picture=$(find "$work/pictures" -type f | sort | awk '
    /picosdeeuropa/ { print; found = 1; exit }
    NR == 1 { first = $0 }
    END { if (!found) print first }')
if [ "$(find "$work/pictures" -type f | wc -l)" -lt 2 ]; then
    echo "fewer than two photographs here; set PENSTOCK_DEMO_PICTURES to a folder that has some"
    exit 1
fi
mv "$picture" "$work/"
picture=$work/$(basename "$picture")
collage=$build_dir/demo-collage.png
"$build_dir/bin/penstock-collage" index "$work/pictures" -o "$work/library" --tiles 60000
# A sixteenth of the histograms fits into the cache, so most pages come and go.
"$build_dir/bin/penstock-collage" make "$picture" "$work/library" -o "$collage" \
    --cache 15MiB --json >"$work/collage.json"
python3 tools/demo_report.py "$work/collage.json"
"$build_dir/bin/penstock-collage" make "$picture" "$work/library" -o "$work/again.png" --method cpu
if ! cmp -s "$collage" "$work/again.png"; then
    echo "DIFFERENT: two methods made different collages of $(basename "$picture")"
    exit 1
fi
echo "the collage of $(basename "$picture") is $collage"

say "OK: penstock-grep found what grep finds, and two methods made the same collage"
