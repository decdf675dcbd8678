// A mount of this process over a folder that has the scratch file, for as long as a case measures
// it; gone when the program ends, also by a signal.
#pragma once

#include <memory>
#include <string>

#include "common/leftover.hpp"
#include "context.hpp"
#include "penstock/mount.hpp"

namespace penstock::bench {

class scratch_mount {
public:
    ~scratch_mount() { remove(); }
    scratch_mount() = default;
    scratch_mount(const scratch_mount&) = delete;
    scratch_mount& operator=(const scratch_mount&) = delete;

    // A new folder in --dir, in it one with a second name of the case's file, and a mount of that.
    status make(runtime& rt, context& here);
    void remove();

    [[nodiscard]] std::string file() const { return point_ + "/file"; }
    [[nodiscard]] const std::string& point() const { return point_; }
    [[nodiscard]] const std::string& source() const { return source_; }
    [[nodiscard]] mount_report report() const { return mount_->report(); }
    // The kernel keeps nothing of the file for programs of the mount.
    status forget_pages() const;

private:
    std::string top_, source_, point_;
    std::unique_ptr<file_mount> mount_;
    apps::leftover noted_[4];  // for signals
};

}  // namespace penstock::bench
