// What the operating system says about a file, judged in one place: which version of it this is,
// whether it is a regular file, whether its size can be believed, whether it may change unseen, and
// which part of it is in memory. And the read of a part of it.
//
// Every program, the library and the mount use these functions, so that two parts never disagree
// about one file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/stat.h>

#include "os/env.hpp"
#include "penstock/options.hpp"

namespace penstock::host {

// Device, inode, size and both times. Two equal identities are the same version of the same file,
// as far as times tell (may_change_unseen has the exception). The change time is among them because
// a program can set the other one back.
file_identity identity_of(const struct stat& facts);

// How a reader may treat a file.
enum class file_kind {
    regular,  // read it by its size
    directory,
    special,     // a device, a pipe, a socket: opening or reading it may wait or do something
    false_size,  // a regular file by its mode, but its size is not the number of bytes that reads
                 // deliver
};

// Judges an open file. `facts` are those of `fd`. Costs nothing but for files that claim to occupy
// no blocks: there one or two bytes are read, because files of /proc and /sys claim sizes that they
// do not have. A sparse or empty file on a disk is regular. A made-up file that claims to be empty
// is false_size without a read, which might wait. An error while reading makes no false_size: the
// reader meets that error itself. `fd` open for asking only (O_PATH) or for writing only is judged
// by its mode alone. Never waits: nothing but a regular file is read.
file_kind kind_of(int fd, const struct stat& facts);

// True for a file of a file system that makes its files up when they are read, such as /proc and
// /sys. Some of them give each reader different bytes. `fd` may be O_PATH.
bool is_made_up(int fd);

// By the mode alone, for what is not open: regular, directory or special.
file_kind kind_of(mode_t mode);

// How long a file of a network file system has to rest before its times count as proof
// (os/rested_files.hpp): 3 s for the coarsest times in use, which are of 2 s, and for clocks of
// writers that differ; and 1 s in which the answer may have come from a cache of attributes, in a
// server that was asked and did not ask further.
inline constexpr std::int64_t server_grain_ns = 4'000'000'000;

// May the file change, or have changed, without leaving other times than those just read? A
// write(2) sets the time before it copies the bytes, and stores to a mapping set it now and then,
// so no time is to be believed while a writer has the file open. Without a writer exact times are
// proof: a later writer leaves a new one. Coarse times of a local file system are proof when they
// are older than a tick. Those of a network file system come from other clocks, so they are never
// compared with ours: they are proof after the file has rested.
//
// `trust` says of which other file systems than local ones times are proof at all.
bool may_change_unseen(const file_facts& facts, trust_mode trust = trust_mode::automatic);

// Do the facts tell which version of the file this is, in the words of every machine? Unlike above
// a file of a network file system need not have rested: it may change once more under these facts,
// so what is read now is not kept under them, but what is kept under them is right.
bool tells_version(const file_facts& facts, trust_mode trust);

// How long a file of a network file system has to rest yet for its times to be proof. 0: it has, or
// they are none, or the file is local.
std::int64_t rest_left_ns(const file_facts& facts, trust_mode trust);

// When pages of a file whose times come from there are used again after a close, for people: behind
// "its pages". With the cure where they are not.
std::string when_used_again(file_times times, trust_mode trust);

// Has the operating system all of this part of the file in memory? Where that cannot be told it
// counts as so. `offset` is a multiple of the page size of the machine.
bool is_in_memory(environment& env, int fd, std::uint64_t offset, std::uint64_t bytes);

// How many bytes there are, fewer only at the end of the file; or a negative errno.
std::int64_t read_all(environment& env, int fd, std::byte* to, std::uint64_t bytes,
                      std::uint64_t offset);

// From now on the operating system reads from this handle what it is asked for and no more: what
// comes behind may be to be had elsewhere.
void read_nothing_ahead(int fd);
// The opposite again.
void read_ahead_as_usual(int fd);

// As stat(2), past signals but for one that asks for the program's end: a file server may let each
// of them end the call. 0 or a negative errno.
int look_at_name(const std::string& path, struct stat& facts);

// Opens `path` for reading if it is a regular file and not special, and judges it; the descriptor
// is closed again. Follows links, and waits for nothing but a lease. 0 with `kind` and `facts`, or
// a negative errno.
int look_at_file(const std::string& path, struct stat& facts, file_kind& kind);

// The rest of "PATH: ..." for a file of this kind that a reader by size cannot take, with the cure.
// Empty for `regular`.
std::string why_not_by_size(file_kind kind);

// Opens a regular file for reading; others are not opened at all, since that may act on a device.
// A descriptor, with the facts of the file, or a negative errno: -EISDIR, or -EOPNOTSUPP for what
// is no regular file or does not tell its size.
int open_regular(environment& env, const std::string& path, file_facts& facts);
// Why it was refused, and the cure. What kind of file it is says more than the code.
std::string why_not_opened(int code, const std::string& path, bool writable);
// The error, and the cure: that of the name, unless it is not the name that was refused.
std::string error_and_cure(int code, const std::string& of_the_name);
// The same where the caller has a cure of the name, or there is none.
std::string error_and_cure(int code);

}  // namespace penstock::host
