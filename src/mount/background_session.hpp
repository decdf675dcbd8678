// A mount while it is served: by threads of libfuse, beside whatever else the process does.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hub/hub.hpp"
#include "os/process_owner.hpp"
#include "mount/mount.hpp"

namespace penstock::mount {

struct session_parts;

class background_session {
public:
    // Mounted when it returns, and not served yet: the kernel keeps programs waiting.
    static status open(const serve_options& wanted, std::unique_ptr<background_session>& out);
    ~background_session();
    background_session(const background_session&) = delete;
    background_session& operator=(const background_session&) = delete;

    // Once: shares files with the regions and runtimes of the hub. `ended` is called by a thread of
    // its own when nothing is served any more. Throws what std::thread throws; then there is
    // nothing to stop.
    void start(host::hub& hub, std::function<void()> ended);
    // Programs' stores come home, nothing is served any more, the mount is taken away. 0 or a
    // negative errno: of the stores, or -EBUSY: something is left behind (left()), as a thread that
    // serves and did not end within seconds, with its memory. At most one thread at a time.
    int stop();
    // After stop(): what is left, for people, to be said after the mount point's name. Empty:
    // nothing.
    [[nodiscard]] const std::string& left() const { return left_; }

    // False in a child of the process that started it, which has none of its threads and must not
    // take it away.
    [[nodiscard]] bool belongs_here() const { return owner_.here(); }
    [[nodiscard]] bool is_running() const;
    [[nodiscard]] int how_it_ended() const;  // 0, or a negative errno; after it ended
    [[nodiscard]] serve_report report() const;

private:
    background_session();
    host::process_owner owner_;             // that started it
    std::shared_ptr<session_parts> parts_;  // also the serving thread's
    serve_report last_;
    std::string left_;
};

}  // namespace penstock::mount
