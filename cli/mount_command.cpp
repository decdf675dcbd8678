#include "commands.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "common/process.hpp"
#include "common/message.hpp"
#include "common/numbers.hpp"
#include "common/report_text.hpp"
#include "penstock/options.hpp"
#include "penstock/version.hpp"

namespace penstock::mount_command {

namespace {

bool quiet = false;
apps::leftover noted;  // the mount, for signals that end the process at once
constexpr std::uint64_t most_read_ahead_bytes = 1u << 30;

void say_ready(const mount::serve_options& wanted) {
    noted.mount(wanted.point);
    if (!quiet)
        apps::say(apps::shown(wanted.source) + " is at " + apps::shown(wanted.point) +
                  "; it goes with: fusermount3 -u " + wanted.point + ", or Ctrl-C");
}

// For SIGUSR1.
void say_state(const mount::serve_report& done) {
    if (!done.buffer) {
        apps::say("mount: " + apps::with_commas(done.requests) + " requests, " +
                  apps::with_commas(done.bytes_asked) + " bytes read, " +
                  apps::with_commas(done.bytes_written) +
                  " bytes written; there is no buffer (--buffer)");
        return;
    }
    const buffer::manager_counts& seen = done.buffer->counts;
    const auto told = [](std::uint64_t number, const char* label) {
        return apps::with_commas(number) + label;
    };
    apps::say("mount: " + told(seen.host_hits, " host hits, ") +
              told(seen.device_hits, " device hits, ") + told(seen.misses, " misses, ") +
              told(seen.prefetched, " pages read ahead, ") +
              told(done.buffer->reads_outside, " reads past the buffer; it has ") +
              told(seen.pages, " pages, ") +
              told(seen.device_pages, " of them in the device, which take ") +
              told(seen.device_bytes, " bytes there"));
}

status settle_buffer(const request& wanted, mount::serve_options& out) {
    if (wanted.buffer.empty()) {
        const bool any = !wanted.ram.empty() || !wanted.gpu.empty() || !wanted.page.empty() ||
                         !wanted.backend.empty();
        return any ? status{-EINVAL,
                            "--ram, --gpu, --page and --backend are of a buffer; give --buffer "
                            "gram too, or leave them out"}
                   : status{};
    }
    mount::buffer_options settings;
    if (wanted.buffer == "native") settings.policy = buffer::policy_kind::native;
    else if (wanted.buffer == "dedu") settings.policy = buffer::policy_kind::dedu;
    else if (wanted.buffer != "gram")
        return {-EINVAL, "--buffer: " + apps::shown(wanted.buffer) +
                             " is no policy; give native, gram or dedu"};
    if (wanted.ram.empty())
        return {
            -EINVAL,
            "--ram is missing: how much host memory the buffer has; give a size such as 256MiB"};
    if (wanted.gpu.empty() && settings.policy != buffer::policy_kind::native)
        return {-EINVAL, "--gpu is missing: how much device memory " + wanted.buffer +
                             " has; give a size such as 256MiB"};
    if (status s = parse_size("--ram", wanted.ram, settings.ram_bytes); !s) return s;
    if (!wanted.gpu.empty())
        if (status s = parse_size("--gpu", wanted.gpu, settings.gpu_bytes); !s) return s;
    if (settings.policy == buffer::policy_kind::native) settings.gpu_bytes = 0;  // it is not used
    std::uint64_t page_bytes = settings.page_bytes;
    if (!wanted.page.empty())
        if (status s = parse_size("--page", wanted.page, page_bytes); !s) return s;
    settings.page_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(page_bytes, 1u << 31));
    if (wanted.backend == "gpu") settings.where = backend::gpu;
    else if (wanted.backend == "cpu") settings.where = backend::cpu;
    else if (!wanted.backend.empty())
        return {-EINVAL, "--backend: " + apps::shown(wanted.backend) + " is none; give cpu or gpu"};
    if (out.background && settings.where != backend::cpu &&
        settings.policy != buffer::policy_kind::native)
        return {-EINVAL,
                "--background: a process that goes on in the background loses its GPU; give "
                "--backend cpu, or leave --background out"};
    out.buffer = settings;
    out.note = [](const std::string& text) { apps::say("mount: " + text); };
    return mount::check(settings, mount::serving_threads(out.threads));
}

// `usage`: what is wrong is how the program was called.
status settle(const request& wanted, mount::serve_options& out, bool& usage) {
    out = wanted.options;
    std::uint32_t threads = 0;
    if (status s = apps::parse_number<std::uint32_t>("--threads", wanted.threads, 1, 1024,
                                                     "from 1 to 1024", threads);
        !s)
        return s;
    if (!wanted.threads.empty()) out.threads = threads;
    std::uint64_t read_ahead_bytes = 0;
    if (!wanted.read_ahead.empty()) {
        if (status s = parse_size("--read-ahead", wanted.read_ahead, read_ahead_bytes); !s)
            return s;
        out.read_ahead_bytes = read_ahead_bytes;
    }
    if (read_ahead_bytes > most_read_ahead_bytes)
        return {-EINVAL, "--read-ahead: " + wanted.read_ahead +
                             " is further than anybody reads; give at most " +
                             format_size(most_read_ahead_bytes)};
    if (wanted.json && out.background)
        return {-EINVAL,
                "--json reports when the mount is gone, and --background ends before; give one of "
                "them"};
    if (status s = settle_buffer(wanted, out); !s) {
        usage = s.code == -EINVAL;
        return s;
    }
    if (status s = mount::check(out); !s) return s;
    // A process in the background has another working directory, and has to find the mount again.
    std::error_code failed;
    const std::filesystem::path point = std::filesystem::absolute(out.point, failed);
    if (!failed) out.point = point.string();
    return {};
}

nlohmann::json json_of(const mount::buffer_options& settings, const mount::buffer_report& done,
                       const std::string& policy) {
    const buffer::manager_counts& seen = done.counts;
    return {{"policy", policy},
            {"backend", done.on_gpu ? "gpu" : "cpu"},
            {"ram_bytes", settings.ram_bytes / settings.page_bytes * settings.page_bytes},
            {"gpu_bytes", settings.gpu_bytes / settings.page_bytes * settings.page_bytes},
            {"page_bytes", settings.page_bytes},
            {"past_the_page_cache", done.past_the_cache},
            {"kernel_copies", done.kernel_copies},
            {"host_hits", seen.host_hits},
            {"device_hits", seen.device_hits},
            {"misses", seen.misses},
            {"prefetched", seen.prefetched},
            {"reads_outside", done.reads_outside},
            {"pages", seen.pages},
            {"device_pages", seen.device_pages},
            {"device_bytes", seen.device_bytes}};
}

status report(const request& wanted, const mount::serve_options& options,
              const mount::serve_report& done) {
    if (!wanted.json) {
        if (!wanted.quiet && done.buffer) say_state(done);
        return {};
    }
    nlohmann::json out = {{"program", "penstock mount"},
                          {"version", version()},
                          {"source", wanted.options.source},
                          {"mount_point", wanted.options.point},
                          {"requests", done.requests},
                          {"errors", done.errors},
                          {"reads", done.reads},
                          {"bytes_asked", done.bytes_asked},
                          {"writes", done.writes},
                          {"bytes_written", done.bytes_written}};
    if (done.buffer) out["buffer"] = json_of(*options.buffer, *done.buffer, wanted.buffer);
    return apps::print_json(apps::line_of(out));
}

}  // namespace

int run(const request& wanted) {
    quiet = wanted.quiet;
    mount::serve_options options;
    mount::serve_report done;
    bool usage = false;
    status s = settle(wanted, options, usage);
    apps::turn_signals_into(SIGTERM);
    if (s) s = mount::serve(options, {say_ready, say_state}, done);
    noted.forget();
    if (s) s = report(wanted, options, done);
    if (s) return apps::exit_done;
    apps::say("mount: " + s.message);
    return usage ? apps::exit_usage : apps::exit_failed;
}

}  // namespace penstock::mount_command
