// penstock mount: a directory at another place, for programs that know nothing of Penstock.
#include "mount/mount.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include "command.hpp"
#include "common/numbers.hpp"
#include "common/process.hpp"

namespace penstock::cli {

namespace {

bool says_ready = true;
apps::leftover noted_mount;  // for signals that end the process at once

void say_ready(const mount::serve_options& wanted, const mount::serve_report& now) {
    noted_mount.mount(wanted.point);
    if (!says_ready) return;
    apps::say(apps::shown(wanted.source) + " is at " + apps::shown(wanted.point) +
              "; it goes with: " + mount::unmount_command(wanted.point) +
              (wanted.background ? "" : ", or Ctrl-C"));
    apps::say(now.passes_through
                  ? "mount: files are passed through: the kernel reads and writes them itself"
                  : "mount: files are not passed through: " + now.not_passing);
}

// For SIGUSR1.
void say_state(const mount::serve_report& done) {
    const auto told = [](std::uint64_t number, const char* label) {
        return apps::with_commas(number) + label;
    };
    if (!done.buffer) {
        apps::say("mount: " + told(done.requests, " requests, ") +
                  told(done.bytes_asked, " bytes read, ") +
                  told(done.bytes_written, " bytes written; there is no buffer (--buffer)"));
        return;
    }
    const buffer::manager_counts& seen = done.buffer->counts;
    apps::say("mount: " + told(seen.host_hits, " host hits, ") +
              told(seen.device_hits, " device hits, ") + told(seen.misses, " misses, ") +
              told(seen.prefetched, " pages read ahead, ") +
              told(done.buffer->reads_outside, " reads past the buffer; it has ") +
              told(seen.pages, " pages, ") +
              told(seen.device_pages, " of them in the device, which take ") +
              told(seen.device_bytes, " bytes there"));
}

const command_text mount_text = {
    "mount",
    "Serves a directory at another place (FUSE), for programs that know nothing of Penstock.\n",
    "\nEvery operation of files and directories goes through to SOURCE. Runs until the mount is "
    "taken away (fusermount3 -u MOUNTPOINT)\nor Ctrl-C. If this process is killed the source is "
    "as it was, and the mount point answers ENOTCONN until it is taken away.\nAs root other users "
    "may use the mount too, each with its own rights. The signal SIGUSR1 has it say what it did "
    "so far.\n",
    false, "mount: "};

class mount_command : public command {
public:
    mount_command() : command(mount_text) {}

    void add_options(apps::option_list& add) override {
        add.operand("SOURCE", options_.source, "The directory to serve");
        add.operand("MOUNTPOINT", options_.point, "An empty directory outside it");
        add.flag("--read-only", options_.read_only, "Refuse every change");
        add.flag("--allow-other", allow_other_, "Other users may use the mount (default: as root)");
        add.flag("--only-me", only_me_, "Other users may not use the mount (default: if not root)");
        add.flag("--background", options_.background, "Return once the mount is there");
        add.text("--threads", threads_, "Threads that serve requests (default: by load, up to 128)",
                 "N");
        add.text("--read-ahead", read_ahead_,
                 "How far the kernel reads ahead, as root (default 1M to 4M, by processors)",
                 "SIZE");
        add.choice("--pass-through", pass_through_, {"auto", "off"}, "way",
                   "Whether the kernel reads and writes the files itself: auto, where it can, as "
                   "root (default), or off",
                   "WAY");
        add.choice("--buffer", policy_, policy_names(), "policy",
                   "Read files through a buffer of host and device memory: native, gram or dedu",
                   "POLICY");
        add.value("--ram", read_size, ram_, "Size of the buffer's part in the host", "SIZE");
        add.value("--gpu", read_size, gpu_, "Size of its part in the device; native does without",
                  "SIZE");
        add.value("--page", read_size, page_, "Size of its pages (default 4KiB)", "SIZE");
        add.choice("--backend", backend_, {"cpu", "gpu"}, "backend",
                   "Where the device's part lies: gpu or cpu (default: a GPU if there is one)",
                   "NAME");
        add.flag("--always-gram", always_gram_,
                 "Use gram's device part also where it costs more than it saves");
        add.flag("--json", common.json,
                 "When the mount is gone, print exactly one JSON object on standard output");
        add.flag("--quiet", common.quiet, "Do not say when the mount is there");
    }

    status run() override {
        says_ready = !common.quiet;
        const std::string point = options_.point;
        mount::serve_report done;
        status ended = settle();
        apps::turn_signals_into(SIGTERM);
        if (ended.ok()) ended = mount::serve(options_, {say_ready, say_state}, done);
        noted_mount.forget();
        if (!ended.ok()) return ended;
        if (common.json) return report(json_of(point, done), "");
        if (!common.quiet && done.buffer) say_state(done);
        return {};
    }

private:
    // Serves until the mount is taken away, so a wrong option is refused before all else.
    status settle() {
        constexpr std::uint64_t most_read_ahead_bytes = 1u << 30;
        std::uint32_t threads = 0;
        status s = apps::parse_number<std::uint32_t>("--threads", threads_, 1, 1024,
                                                     "from 1 to 1024", threads);
        if (threads > 0) options_.threads = threads;
        if (s && !read_ahead_.empty())
            s = parse_size("--read-ahead", read_ahead_, options_.read_ahead_bytes.emplace());
        if (s)
            s = first_mistake(
                {{options_.read_ahead_bytes.value_or(0) > most_read_ahead_bytes,
                  "--read-ahead: " + read_ahead_ + " is further than anybody reads; give at most " +
                      format_size(most_read_ahead_bytes)},
                 {allow_other_ && only_me_,
                  "--allow-other and --only-me contradict each other; give one of them"},
                 {common.json && options_.background,
                  "--json reports when the mount is gone, and --background ends before; give one "
                  "of them"}});
        used_wrongly = !s.ok();
        if (used_wrongly) return s;
        options_.allow_other = allow_other_ || (!only_me_ && ::geteuid() == 0);
        options_.pass_through = pass_through_ != "off";
        s = settle_buffer();
        used_wrongly = s.code == -EINVAL;
        if (s) s = mount::check(options_);
        if (!s) return s;
        // A process in the background has another working directory, and has to find the mount
        // again.
        std::error_code failed;
        const std::filesystem::path point = std::filesystem::absolute(options_.point, failed);
        if (!failed) options_.point = point.string();
        return {};
    }

    status settle_buffer() {
        if (policy_.empty())
            return first_mistake(
                {{ram_ || gpu_ || page_ || !backend_.empty() || always_gram_,
                  "--ram, --gpu, --page, --backend and --always-gram are of a buffer; give "
                  "--buffer gram too, or leave them out"}});
        mount::buffer_options settings{.policy = policy_named(policy_)};
        const bool native = settings.policy == buffer::policy_kind::native;
        settings.ram_bytes = ram_.value_or(0);
        settings.gpu_bytes = native ? 0 : gpu_.value_or(0);  // native does not use it
        settings.page_bytes = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(page_.value_or(settings.page_bytes), 1u << 31));
        settings.where = backend_named(backend_);
        settings.stands_back = !always_gram_;
        if (status s = first_mistake(
                {{!ram_,
                  "--ram is missing: how much host memory the buffer has; give a size such as "
                  "256MiB"},
                 {!gpu_ && !native, "--gpu is missing: how much device memory " + policy_ +
                                        " has; give a size such as 256MiB"},
                 {native && settings.where == backend::gpu,
                  "--backend: native has no part on a device; leave it out, or give --buffer gram "
                  "or dedu"},
                 {always_gram_ && settings.policy != buffer::policy_kind::gram,
                  "--always-gram is of gram; leave it out, or give --buffer gram"}});
            !s)
            return s;
        options_.own_buffer = settings;
        options_.note = [](const std::string& text) { apps::say("mount: " + text); };
        return mount::check(settings, mount::serving_threads(options_.threads));
    }

    nlohmann::json json_of(const std::string& point, const mount::serve_report& done) const {
        nlohmann::json out = {{"source", options_.source},
                              {"mount_point", point},
                              {"requests", done.requests},
                              {"errors", done.errors},
                              {"reads", done.reads},
                              {"bytes_asked", done.bytes_asked},
                              {"writes", done.writes},
                              {"bytes_written", done.bytes_written},
                              {"opens", done.opens},
                              {"passed_opens", done.passed_opens},
                              {"passes_through", done.passes_through}};
        if (!done.buffer) return out;
        const mount::buffer_options& settings = *options_.own_buffer;
        const buffer::manager_counts& seen = done.buffer->counts;
        const auto whole_pages = [&settings](std::uint64_t bytes) {
            return bytes / settings.page_bytes * settings.page_bytes;
        };
        out["buffer"] = {{"policy", policy_},
                         {"backend", done.buffer->on_gpu ? "gpu" : "cpu"},
                         {"ram_bytes", whole_pages(settings.ram_bytes)},
                         {"gpu_bytes", whole_pages(settings.gpu_bytes)},
                         {"page_bytes", settings.page_bytes},
                         {"past_the_page_cache", done.buffer->past_the_cache},
                         {"kernel_copies", done.buffer->kernel_copies},
                         {"host_hits", seen.host_hits},
                         {"device_hits", seen.device_hits},
                         {"misses", seen.misses},
                         {"prefetched", seen.prefetched},
                         {"reads_outside", done.buffer->reads_outside},
                         {"pages", seen.pages},
                         {"device_pages", seen.device_pages},
                         {"device_bytes", seen.device_bytes}};
        return out;
    }

    mount::serve_options options_;
    std::string threads_, read_ahead_, pass_through_, policy_, backend_;
    std::optional<std::uint64_t> ram_, gpu_, page_;
    bool always_gram_ = false, allow_other_ = false, only_me_ = false;
};

}  // namespace

std::unique_ptr<command> make_mount() { return std::make_unique<mount_command>(); }

}  // namespace penstock::cli
