#!/usr/bin/env python3
"""Programs that know nothing of Penstock do on a mount what they do elsewhere: programs_test.py
PROGRAM sqlite|git|fio|postgres|users|build|storm [POLICY of a small buffer]."""
import glob
import json
import multiprocessing
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import mounted


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                          timeout=1000, **more)
    if done.returncode != 0:
        raise AssertionError(
            f"{command}: {done.returncode}: {done.stdout.decode(errors='replace')[-2000:]}")
    return done.stdout


def transfer(path, worker, rounds):
    """Moves money between accounts, each time in a transaction."""
    base = sqlite3.connect(path, timeout=1000, isolation_level=None)
    for i in range(rounds):
        a, b = (worker * 7 + i) % 50, (worker * 13 + 3 * i + 1) % 50
        base.execute("begin immediate")
        base.execute("update account set money = money - 1 where id = ?", (a,))
        base.execute("update account set money = money + 1 where id = ?", (b,))
        base.execute("insert into log values (?, ?)", (worker, i))
        base.execute("commit")
    base.close()


def sqlite(mount, journal):
    """Several processes write one database; nothing is lost, and the file is as good in the
    source."""
    path, rounds, workers = mount.point / f"{journal}.db", 60, 4
    base = sqlite3.connect(path)
    base.execute(f"pragma journal_mode = {journal}")
    base.executescript("create table account (id integer primary key, money integer); create table "
                       "log (worker, i)")
    base.executemany("insert into account values (?, 100)", [(i,) for i in range(50)])
    base.commit()
    base.close()
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        pool.starmap(transfer, [(path, w, rounds) for w in range(workers)])
    for where in (mount.point, mount.source):
        base = sqlite3.connect(where / f"{journal}.db")
        found = [base.execute(q).fetchone()[0]
                 for q in ("pragma integrity_check", "select sum(money) from account",
                           "select count(*) from log")]
        base.close()
        if found != ["ok", 5000, rounds * workers]:
            raise AssertionError(f"sqlite with {journal} in {where}: {found}")
    print(f"sqlite, journal {journal}: {workers} processes, {rounds * workers} transactions, all "
          "there")


def test_sqlite(mount):
    sqlite(mount, "delete")
    sqlite(mount, "wal")  # shares memory through a mapping


def test_git(mount):
    git = mounted.need_program("git", "git")
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    env = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null",
               GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b", GIT_COMMITTER_NAME="a",
               GIT_COMMITTER_EMAIL="a@b")
    origin = mount.source.parent / "plain" / "origin"
    run(git, "init", "-q", origin, env=env)
    for folder in ("src", "include", "tests", "docs"):
        shutil.copytree(os.path.join(top, folder), origin / folder,
                        ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))  # as git does
    run(git, "add", "-A", cwd=origin, env=env)
    run(git, "commit", "-q", "-m", "first", cwd=origin, env=env)
    run(git, "mv", "docs", "texts", cwd=origin, env=env)
    (origin / "new").write_text("more\n")
    run(git, "add", "-A", cwd=origin, env=env)
    run(git, "commit", "-q", "-m", "second", cwd=origin, env=env)
    clone = mount.point / "clone"
    run(git, "clone", "-q", "--no-hardlinks", origin, clone, env=env)
    for at in ("HEAD~1", "-"):
        run(git, "checkout", "-q", at, cwd=clone, env=env)
        if run(git, "status", "--porcelain", cwd=clone, env=env):
            raise AssertionError(f"git status is not empty at {at}")
    run(git, "gc", "-q", cwd=clone, env=env)
    run(git, "fsck", "--full", "--strict", cwd=clone, env=env)
    run("diff", "-r", "--exclude=.git", origin, mount.source / "clone")
    print("git: cloned, checked out, packed and checked; the work tree equals its origin")


def test_fio(mount):
    fio = mounted.need_program("fio", "fio")
    for name, flags in (("random", ["--rw=randrw", "--ioengine=psync"]),
                        ("mapped", ["--rw=randwrite", "--ioengine=mmap"]),
                        ("direct",
                         ["--rw=randwrite", "--ioengine=libaio", "--direct=1", "--iodepth=8"])):
        text = run(fio, "--output-format=json", f"--name={name}", f"--directory={mount.point}",
                   "--size=6m", "--numjobs=8", "--bs=4k", "--verify=crc32c", "--verify_fatal=1",
                   "--do_verify=1", "--verify_state_save=0", "--group_reporting", *flags)
        out = json.loads(text[text.index(b"{"):])  # notes come before
        job = out["jobs"][0]
        if job["error"] != 0 or job["write"]["io_bytes"] == 0:
            raise AssertionError(f"fio {name}: error {job['error']}")
        print(f"fio {name}: 8 jobs, {job['write']['io_bytes'] >> 20} MiB written and verified")


def test_postgres(mount):
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    if not programs:
        mounted.skip("PostgreSQL is not there (Debian: postgresql)")
    if os.geteuid() != 0:
        mounted.skip("PostgreSQL is started as a user of its own, which takes root")
    programs, user = os.path.dirname(programs[-1]), "postgres"
    data, sockets = mount.point / "data", mount.source.parent / "sockets"
    for folder in (data, sockets):
        folder.mkdir()
        shutil.chown(folder, user, user)

    def as_user(*command):
        return run("su", "-s", "/bin/sh", user, "-c", " ".join(str(c) for c in command), cwd="/")

    as_user(f"{programs}/initdb", "-D", data, "-A", "trust", "--no-sync")
    log = sockets / "log"
    as_user(f"{programs}/pg_ctl", "-D", data, "-l", log, "-w", "-o",
            f"\"-k {sockets} -c listen_addresses='' -c shared_buffers=16MB\"", "start")
    try:
        as_user(f"{programs}/createdb", "-h", sockets, "bench")
        as_user(f"{programs}/pgbench", "-h", sockets, "-q", "-i", "-s", "2", "bench")
        text = as_user(f"{programs}/pgbench", "-h", sockets, "-c", "4", "-j", "2", "-t", "150",
                       "bench").decode()
        if "600/600" not in text:
            raise AssertionError(text)
        sums = as_user(f"{programs}/psql", "-h", sockets, "-At", "-c",
                       "\"select (select sum(bbalance) from pgbench_branches) = (select sum(delta) "
                       "from pgbench_history), (select count(*) from pgbench_history)\"",
                       "bench").decode().split()
        if sums != ["t|600"]:
            raise AssertionError(f"the sums of the bank differ: {sums}")
    finally:
        as_user(f"{programs}/pg_ctl", "-D", data, "-m", "fast", "-w", "stop")
    print("PostgreSQL: 600 transactions by 4 clients, the sums agree")


def test_users(mount):
    """Another user has its own rights, and owns what it makes."""
    if os.geteuid() != 0:
        mounted.skip("acting as another user takes root")
    account = pwd.getpwnam("nobody")
    os.chmod(mount.point, 0o755)
    (mount.point / "open").mkdir()
    os.chmod(mount.point / "open", 0o777)
    (mount.point / "secret").write_text("x")
    os.chmod(mount.point / "secret", 0o600)
    (mount.point / "group").mkdir()
    os.chown(mount.point / "group", 0, 1234)
    os.chmod(mount.point / "group", 0o2777)
    for name in ("cut", "written", "cut by name"):
        (mount.point / "open" / name).write_text("x")
        os.chmod(mount.point / "open" / name, 0o6777)
    script = f"""cd {mount.point}
: >open/cut && printf x >>open/written && truncate -s 0 'open/cut by name' || exit 6
cat secret 2>/dev/null && exit 1
touch new 2>/dev/null && exit 2
touch open/file && mkdir open/dir && ln -s x open/link || exit 3
mkfifo open/pipe && ln open/file open/other || exit 3
(umask 077; touch open/mine) && touch group/file || exit 4
chmod 4755 open/file && echo more >>open/file || exit 4
chown root open/file 2>/dev/null && exit 5
exit 0"""
    done = subprocess.run(["sh", "-c", script], user=account.pw_uid, group=account.pw_gid,
                          extra_groups=[], check=False)
    if done.returncode != 0:
        raise AssertionError(f"step {done.returncode} of another user")
    for name in ("file", "dir", "link", "pipe", "mine"):
        s = os.lstat(mount.source / "open" / name)
        if (s.st_uid, s.st_gid) != (account.pw_uid, account.pw_gid):
            raise AssertionError(f"open/{name} belongs to {s.st_uid}:{s.st_gid}")
    if os.stat(mount.source / "group" / "file").st_gid != 1234:
        raise AssertionError("a directory does not give its group to what is made in it")
    if os.stat(mount.source / "open" / "mine").st_mode & 0o777 != 0o600:
        raise AssertionError("the umask was not applied, or twice")
    if os.stat(mount.source / "open" / "file").st_mode & 0o7777 != 0o755:
        raise AssertionError("a file that another wrote to keeps its set-id bit")
    for name in ("cut", "written", "cut by name"):
        if os.stat(mount.source / "open" / name).st_mode & 0o7777 != 0o777:
            raise AssertionError(f"open/{name} keeps its set-id bits")
    print("users: rights, owners, groups, umask and set-id bits are as elsewhere")


def test_build(mount):
    """Compilers, archivers and make, in many processes."""
    make = mounted.need_program("make", "make")
    for place in (mount.point, mount.source.parent / "plain"):
        work = place / "build"
        work.mkdir()
        for i in range(60):
            (work / f"part{i}.c").write_text(f"int part{i}(int x) {{ return x * {i} + 1; }}\n")
        (work / "main.c").write_text(
            "".join(f"int part{i}(int);\n" for i in range(60))
            + "int printf(const char*, ...);\nint main(void) { int s = 0;\n"
            + "".join(f"s += part{i}({i});\n" for i in range(60))
            + 'printf("%d\\n", s); return 0; }\n')
        (work / "Makefile").write_text("OBJECTS = $(patsubst %.c,%.o,$(wildcard part*.c))\nprog: "
                                       "main.o parts.a\n\tgcc -o $@ main.o parts.a\nparts.a: "
                                       "$(OBJECTS)\n\tar rcsD $@ $^\n%.o: %.c\n\tgcc -O1 -c $< -o "
                                       "$@\n")
        run(make, "-s", "-j4", cwd=work)
        if (run(make, "-q", cwd=work)
            or run(work / "prog").strip() != str(sum(i * i + 1 for i in range(60))).encode()):
            raise AssertionError("what was built is not right")
    for name in ("prog", "parts.a"):
        if ((mount.source / "build" / name).read_bytes()
            != (mount.source.parent / "plain" / "build" / name).read_bytes()):
            raise AssertionError(f"{name} differs from what is built elsewhere")
    print("make: 61 compilations, an archive and a program, equal to those built elsewhere")


def storm(folder, worker, seconds):
    """Lists, makes, moves and removes, and is interrupted by a timer all the time."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
    own, end, rounds = folder / f"w{worker}", time.monotonic() + seconds, 0
    own.mkdir()
    while time.monotonic() < end:
        for i in range(20):
            (own / f"f{i}").write_bytes(b"x" * i)
        os.rename(own, folder / "moved" / f"w{worker}")
        for _, _, files in os.walk(folder):
            rounds += len(files)
        for entry in os.scandir(folder / "moved" / f"w{worker}"):
            entry.stat()
            os.unlink(entry.path)
        os.rename(folder / "moved" / f"w{worker}", own)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return rounds


def test_storm(mount):
    """Directories are closed, and programs interrupted, while other threads of the service still
    have their requests."""
    workers = 8
    (mount.point / "moved").mkdir()
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        rounds = pool.starmap(storm, [(mount.point, w, 4) for w in range(workers)])
    if (mount.process.poll() is not None
        or any(os.listdir(mount.source / f"w{w}") for w in range(workers))):
        raise AssertionError("the service is gone, or files are left")
    print(f"storm: {workers} processes saw {sum(rounds)} files")


def main():
    name = sys.argv[1]
    mounted.need_fuse()
    source, point, _ = mounted.folders()
    flags = mounted.buffer_flags(sys.argv[2], "1MiB", "4MiB") if len(sys.argv) > 2 else []
    with mounted.Mount(source, point, *flags) as mount:
        globals()[f"test_{name}"](mount)
        done = mount.end()
    print(f"{done['requests']} requests, {done['bytes_written']} bytes written "
          f"{done.get('buffer', '')}")


main()
