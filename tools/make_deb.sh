#!/usr/bin/env bash
# Makes the Debian packages penstock (programs), libpenstock-dev (libraries and headers) and
# python3-penstock (the Python package, for Debian's own Python):
#   tools/make_deb.sh [--build FOLDER] [--no-python] [OUT]
#
# They come to OUT (default: the working directory). Without --build it builds both from the tree,
# for CPU threads alone, in a folder of its own; with it, it takes a build that is there. A build
# with CUDA is refused: what it needs cannot be named to dpkg.
#
# It needs dpkg-dev and no debhelper; for python3-penstock, which is left out with a word about it
# where they are missing, python3-dev and nanobind (pip install nanobind). Whose packages they are
# stands in DEBFULLNAME and DEBEMAIL.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/tools/common.sh"

fail() {
    echo "make_deb.sh: $*" >&2
    exit 1
}

build= out=. with_python=yes
while [ $# -gt 0 ]; do
    case $1 in
        --build)
            [ $# -gt 1 ] || fail "--build: give the folder of a build"
            build=$2
            shift 2
            ;;
        --no-python)
            with_python=no
            shift
            ;;
        -*) fail "$1 is no option; there are --build FOLDER and --no-python" ;;
        *)
            out=$1
            shift
            ;;
    esac
done
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture gzip strip; do
    command -v "$tool" >/dev/null || fail "$tool is missing; apt-get install dpkg-dev binutils"
done
if [ -n "$build" ]; then
    [ -f "$build/CMakeCache.txt" ] || fail "--build: $build is no folder of a build"
    if grep -q '^CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt"; then
        fail "--build: $build has CUDA in it; configure one with -DPENSTOCK_CUDA=OFF"
    fi
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -z "$build" ]; then
    build=${PENSTOCK_DEB_BUILD_DIR:-$root/build/deb}
    configure "$build" -DCMAKE_BUILD_TYPE=Release -DPENSTOCK_CUDA=OFF -DPENSTOCK_BUILD_TESTS=OFF \
        -DPENSTOCK_BUILD_EXAMPLES=OFF -DCMAKE_INSTALL_PREFIX=/usr \
        -DCMAKE_EXE_LINKER_FLAGS="$(dpkg-buildflags --get LDFLAGS)"
    build "$build"
fi
build=$(cd "$build" && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)

number() { sed -n "s/.*define PENSTOCK_VERSION_$1 //p" "$root/include/penstock/version.hpp"; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)-1
architecture=$(dpkg-architecture -qDEB_HOST_ARCH)
maintainer="${DEBFULLNAME:-Penstock maintainers} <${DEBEMAIL:-penstock@users.noreply.github.com}>"
# The same packages from the same tree.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null ||
    date +%s)}
date_text=$(date -u -R -d "@$SOURCE_DATE_EPOCH")

# put FILE... FOLDER: plain files, readable by all.
put() { install -D -m 644 -t "$work/${*: -1}" "${@:1:$#-1}"; }

documents() {
    local package=$1 folder=$work/$1/usr/share/doc/$1
    mkdir -p "$folder"
    {
        echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
        echo "Upstream-Name: Penstock"
        echo
        echo "Files: *"
        echo "Copyright: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y) The authors of Penstock"
        echo "License: Apache-2.0"
        echo " On Debian systems the text of the licence is in"
        echo " /usr/share/common-licenses/Apache-2.0."
    } >"$folder/copyright"
    printf 'penstock (%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
        "$version" "$maintainer" "$date_text" | gzip -9n >"$folder/changelog.Debian.gz"
    gzip -9nc "$root/CHANGELOG.md" >"$folder/changelog.gz"
    cp "$root/THIRD_PARTY.txt" "$folder"
    chmod 644 "$folder"/*
}

# control PACKAGE SECTION DEPENDS SHORT LONG
control() {
    local size
    size=$(du -sk --apparent-size "$work/$1" | cut -f1)
    mkdir -p "$work/$1/DEBIAN"
    {
        echo "Package: $1"
        echo "Source: penstock"
        echo "Version: $version"
        echo "Architecture: $architecture"
        echo "Maintainer: $maintainer"
        echo "Installed-Size: $size"
        [ -z "$3" ] || echo "Depends: $3"
        case $1 in
            penstock) echo "Recommends: fuse3" ;;
            python3-penstock)
                echo "Recommends: python3-numpy"
                echo "Suggests: python3-torch, libpenstock-dev"
                ;;
        esac
        echo "Section: $2"
        echo "Priority: optional"
        echo "Description: $4"
        echo "$5" | sed 's/^/ /'
    } >"$work/$1/DEBIAN/control"
    (cd "$work/$1" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' |
        LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
}

# script_of PACKAGE NAME: what dpkg runs, from standard input.
script_of() {
    cat >"$work/$1/DEBIAN/$2"
    chmod 755 "$work/$1/DEBIAN/$2"
}

# The libraries that programs are linked with, as packages.
depends_of() {
    mkdir -p "$work/shlibs/debian"
    printf 'Source: penstock\n\nPackage: penstock\nArchitecture: any\n' \
        >"$work/shlibs/debian/control"
    (cd "$work/shlibs" && dpkg-shlibdeps -O "$@" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

programs() {
    local share=$work/penstock/usr/share step
    DESTDIR=$work/penstock cmake --install "$build" --prefix /usr --component programs >/dev/null
    strip --strip-unneeded -R .comment -R .note "$work"/penstock/usr/bin/*
    # Debian has its own place for what packages bring to zsh.
    mkdir -p "$share/zsh/vendor-completions"
    mv "$share"/zsh/site-functions/* "$share/zsh/vendor-completions/"
    rmdir "$share/zsh/site-functions"
    gzip -9n "$share"/man/man1/*.1
    put "$root"/contrib/systemd/penstock-mount@.service penstock/lib/systemd/system
    put "$root"/contrib/systemd/*.conf "$root"/contrib/prometheus/* "$root"/contrib/grafana/* \
        penstock/usr/share/doc/penstock/examples
    documents penstock
    control penstock utils "$(depends_of "$work"/penstock/usr/bin/*)" \
        "files for GPU kernels and CPU threads through one page cache" \
        "Programs that look at what Penstock can do on a machine, copy and keep files
through its page cache, serve a directory at another place, tell what running
programs do with it, and measure it; and its applications: searching, collages,
matrices, image stitching and shortest paths. This build runs kernels on CPU
threads."
    # systemd goes on with the unit that it read until it is told.
    for step in postinst postrm; do
        script_of penstock "$step" <<'END'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
END
    done
}

libraries() {
    local depends="libc6-dev" packages
    DESTDIR=$work/libpenstock-dev cmake --install "$build" --prefix /usr \
        --component Unspecified >/dev/null
    find "$work/libpenstock-dev" -name '*.a' -exec strip --strip-debug {} +
    # What pkg-config asks for, which the package for CMake asks too.
    packages=$(find "$work/libpenstock-dev" -name '*.pc' -exec cat {} +)
    [[ $packages != *liburing* ]] || depends="$depends, liburing-dev"
    [[ $packages != *fuse3* ]] || depends="$depends, libfuse3-dev"
    [[ $depends = libc6-dev ]] || depends="$depends, pkg-config"
    documents libpenstock-dev
    control libpenstock-dev libdevel "$depends" \
        "files for GPU kernels and CPU threads through one page cache (development)" \
        "Static libraries and headers for programs whose kernels open, read, map and
write the files of the host, with packages for CMake and pkg-config. This build
runs kernels on CPU threads."
}

# An interpreter that has nanobind: this one, that of the build, or one that pip fills.
python_with_nanobind() {
    local python make=("$root/tools/python_environment.py" "$work/python-environment")
    for python in python3 "$build/python-environment/bin/python" \
        "$(python3 -B "${make[@]}" 2>/dev/null)"; do
        if "$python" -m nanobind --cmake_dir >/dev/null 2>&1; then
            echo "$python"
            return
        fi
    done
    return 1
}

# licence_text FILE: as a paragraph of a copyright file.
licence_text() { sed -e 's/^ *//' -e 's/^$/./' -e 's/^/ /' "$1"; }

# The module is built with the libraries of libpenstock-dev, without the package nanobind-backend,
# which Debian does not have: so it is for the version of Python that Debian has.
python_package() {
    local package=python3-penstock modules=usr/lib/python3/dist-packages python=/usr/bin/python3
    local nanobind nanobind_python this next info depends
    if [ ! -x "$python" ] || ! "$python" -c 'import pathlib, sysconfig, sys
sys.exit(not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists())'; then
        echo "make_deb.sh: no python3-penstock: install python3-dev" >&2
        return
    fi
    if ! nanobind_python=$(python_with_nanobind); then
        echo "make_deb.sh: no python3-penstock: pip cannot install nanobind here" >&2
        return
    fi
    nanobind=$("$nanobind_python" -m nanobind --cmake_dir)
    this=$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
    next=${this%.*}.$((${this#*.} + 1))
    cmake -S "$root/python" -B "$work/module" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_UNITY_BUILD=ON -DCMAKE_CXX_FLAGS="$(dpkg-buildflags --get CXXFLAGS)" \
        -DCMAKE_MODULE_LINKER_FLAGS="$(dpkg-buildflags --get LDFLAGS)" \
        -DCMAKE_PREFIX_PATH="$work/libpenstock-dev/usr" -DPython_EXECUTABLE="$python" \
        -Dnanobind_DIR="$nanobind" -DPENSTOCK_PYTHON_BACKEND=OFF >"$work/module.log" 2>&1 &&
        cmake --build "$work/module" --parallel "$jobs" >>"$work/module.log" 2>&1 || {
        cat "$work/module.log" >&2
        fail "python3-penstock: the module cannot be built"
    }
    put "$root"/python/penstock/*.py* "$root"/python/penstock/py.typed "$package/$modules/penstock"
    put "$root"/python/penstock/device/* "$package/$modules/penstock/device"
    put "$work"/module/python/penstock/_core.*.so "$package/$modules/penstock"
    rm -rf "$work/$package/$modules/penstock/device/__pycache__"
    strip --strip-unneeded -R .comment -R .note "$work/$package/$modules"/penstock/*.so
    info=$work/$package/$modules/penstock_io-${version%-*}.dist-info
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: penstock-io\nVersion: %s\n' "${version%-*}" \
        >"$info/METADATA"
    echo "dpkg" >"$info/INSTALLER"
    printf '[console_scripts]\npenstock-agent = penstock.agent:main\n' >"$info/entry_points.txt"
    chmod 644 "$info"/*
    mkdir -p "$work/$package/usr/bin"
    cat >"$work/$package/usr/bin/penstock-agent" <<'END'
#!/usr/bin/python3
import sys

from penstock.agent import main

sys.exit(main())
END
    chmod 755 "$work/$package/usr/bin/penstock-agent"
    put "$root"/contrib/man/penstock-agent.1 "$package/usr/share/man/man1"
    gzip -9n "$work/$package"/usr/share/man/man1/*.1
    documents "$package"
    {
        echo
        echo "Files: $modules/penstock/_core.*.so"
        echo "Copyright: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y) The authors of Penstock"
        echo "           2022 Wenzel Jakob (nanobind)"
        echo "           2017 Thibaut Goetghebuer-Planchon (robin-map)"
        echo "License: Apache-2.0 and BSD-3-clause and Expat"
        echo " nanobind:"
        licence_text "$("$nanobind_python" -c 'import importlib.metadata as m
print(next(p.locate() for p in m.files("nanobind") if p.name == "LICENSE"))')"
        echo " ."
        echo " robin-map:"
        sed -n '/^ \* MIT/,/^ \*\//s/^ \*\/\?//p' \
            "$nanobind/../ext/robin_map/include/tsl/robin_map.h" | licence_text -
    } >>"$work/$package/usr/share/doc/$package/copyright"
    depends=$(depends_of "$work/$package/$modules"/penstock/*.so)
    control "$package" python "python3 (>= $this), python3 (<< $next), $depends" \
        "files for tensors and arrays through one page cache (Python 3)" \
        "Rows of .npy, .safetensors and raw files by their numbers, and files as plain
memory that arrays share, for Python, with numpy and PyTorch. This build works
on CPU threads."
    script_of "$package" postinst <<'END'
#!/bin/sh
set -e
if command -v py3compile >/dev/null 2>&1; then
    py3compile -p python3-penstock
fi
END
    script_of "$package" prerm <<'END'
#!/bin/sh
set -e
if command -v py3clean >/dev/null 2>&1; then
    py3clean -p python3-penstock
fi
END
}

programs
libraries
[ "$with_python" = no ] || python_package
for package in penstock libpenstock-dev python3-penstock; do
    [ -d "$work/$package" ] || continue
    find "$work/$package" -type d -exec chmod 755 {} +
    file=$out/${package}_${version}_$architecture.deb
    dpkg-deb --root-owner-group -Zxz --build "$work/$package" "$file" >/dev/null
    echo "$file"
done
