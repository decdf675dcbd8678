// What the kernel keeps for programs that use a mount, given up for the regions of this process
// (region/programs.hpp).
//
// A mapping of a program that stores is known by nothing but that the program has the file open for
// reading and writing. So the kernel is asked to write back while a program has, by fsync of a
// descriptor of our own on the mount: that also waits for what the kernel is about to write
// already, of which older kernels (before 6.16) keep a copy apart from the page, and which a page
// that is taken away does not wait for. Threads apart do it (own_files.hpp).
#pragma once

#include <shared_mutex>
#include <string>

#include "mount/own_files.hpp"
#include "mount/tree.hpp"
#include "region/programs.hpp"

namespace penstock::mount {

class mounted_views final : public host::program_views {
public:
    // `point` without links in it; `device`: st_dev of the mount's files.
    mounted_views(tree& files, fuse_session* session, std::string point, std::uint64_t device)
        : files_(files), point_(std::move(point)), own_(files.openers, device), session_(session) {}
    // Once, before the other calls. Throws what std::thread throws.
    void begin() { own_.begin(); }

    int collect(const region::file_key& file) override;
    int take_away(const region::file_key& file, std::uint64_t offset, std::uint64_t bytes) override;

    // Of every file: 0, or the first error.
    int collect_all();
    // Waits for calls that are under way; later ones find nothing to do.
    void end();

private:
    int write_back(const known_file& file);
    int invalidate(std::uint64_t number, std::uint64_t offset, std::uint64_t bytes) const;
    std::string own_path(const known_file& file) const;

    tree& files_;
    const std::string point_;
    own_files own_;
    std::shared_mutex alive_;
    fuse_session* session_;  // null: ended; guarded by alive_
};

}  // namespace penstock::mount
