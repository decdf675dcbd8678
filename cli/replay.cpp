#include "commands.hpp"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/numbers.hpp"
#include "common/report_text.hpp"
#include "penstock/options.hpp"
#include "penstock/version.hpp"
#include "replay_run.hpp"

namespace penstock::replay {

namespace {

constexpr std::uint64_t least_pages = 2, most_pages = std::uint64_t{1} << 31, table_factor = 8,
                        absent_factor = 2, most_absent = std::uint64_t{1} << 31, usual_blocks = 4;
// What docs/apps/traces.md promises of contents is of such pieces.
constexpr std::uint32_t least_block_bytes = 64;

status settle_words(const request& wanted, simulation& out) {
    if (wanted.policy.empty()) return {-EINVAL, "--policy is missing; give native, gram or dedu"};
    if (wanted.ram.empty())
        return {-EINVAL,
                "--ram is missing: how much host memory there is; give a size such as 256MiB"};
    if (wanted.policy == "native") out.page_policy = policy::native;
    else if (wanted.policy == "gram") out.page_policy = policy::gram;
    else if (wanted.policy == "dedu") out.page_policy = policy::dedu;
    else
        return {-EINVAL, "--policy: " + apps::shown(wanted.policy) +
                             " is no policy; give native, gram or dedu"};
    if (wanted.order == "clock") out.order = host_order::clock;
    else if (wanted.order != "lru")
        return {-EINVAL,
                "--order: " + apps::shown(wanted.order) + " is no order; give lru or clock"};
    if (out.page_policy != policy::dedu && !wanted.blocks.empty())
        return {-EINVAL, "--blocks: only dedu has blocks; leave it out, or give --policy dedu"};
    if (out.page_policy != policy::dedu && !wanted.table.empty())
        return {-EINVAL,
                "--table: only dedu has such a limit; leave it out, or give --policy dedu"};
    if (out.page_policy != policy::dedu && !wanted.absent.empty())
        return {-EINVAL,
                "--absent: only dedu knows absent blocks; leave it out, or give --policy dedu"};
    if (out.page_policy != policy::native && wanted.gpu.empty())
        return {-EINVAL, "--gpu is missing: how much device memory " + wanted.policy +
                             " has; give a size such as 256MiB"};
    return {};
}

status settle_run(const request& wanted, run_settings& out) {
    const bool any = !wanted.threads.empty() || !wanted.backend.empty() || wanted.cached ||
                     wanted.writes || wanted.verify;
    if (wanted.simulate)
        return any ? status{-EINVAL,
                            "--threads, --backend, --cached, --writes and --verify are of a replay "
                            "against files; leave them out, or --simulate"}
                   : status{};
    if (wanted.backend != "" && wanted.backend != "cpu" && wanted.backend != "gpu")
        return {-EINVAL, "--backend: " + apps::shown(wanted.backend) + " is none; give cpu or gpu"};
    if (status s = apps::parse_number<std::uint32_t>("--threads", wanted.threads, 1, 1024,
                                                     "from 1 to 1024", out.threads);
        !s)
        return s;
    if (wanted.verify && wanted.writes && out.threads > 1)
        return {-EINVAL,
                "--verify with --writes needs one thread, for of two that write a page the last "
                "one is not known; leave one out"};
    out.backend = wanted.backend;
    out.past_the_cache = !wanted.cached;
    out.writes = wanted.writes;
    out.verify = wanted.verify;
    return {};
}

status settle_batches(const request& wanted, const simulation& setup, run_settings& out) {
    if ((!wanted.batch.empty() || !wanted.batch_wait.empty()) &&
        (wanted.simulate || setup.page_policy == policy::native))
        return {-EINVAL,
                "--batch and --batch-wait are of gram and dedu against files; leave them out, or "
                "give --policy gram or dedu and no --simulate"};
    if (status s = apps::parse_number<std::uint32_t>("--batch", wanted.batch, 1, 4096,
                                                     "from 1 to 4096", out.batch_pages);
        !s)
        return s;
    return apps::parse_number<std::uint32_t>("--batch-wait", wanted.batch_wait, 0, 1'000'000,
                                             "from 0 to 1000000", out.batch_wait_us);
}

status settle_dedu_run(const request& wanted, const simulation& setup, buffer::dedu_settings& out) {
    const bool any = !wanted.signature.empty() || !wanted.sign_on.empty() || wanted.always_dedu;
    if (any && (wanted.simulate || setup.page_policy != policy::dedu))
        return {-EINVAL,
                "--signature, --sign-on and --always-dedu are of dedu against files; leave them "
                "out, or give --policy dedu and no --simulate"};
    if (wanted.signature == "md5") out.signature = buffer::signature_kind::md5;
    else if (!wanted.signature.empty() && wanted.signature != "quick")
        return {-EINVAL,
                "--signature: " + apps::shown(wanted.signature) + " is none; give quick or md5"};
    if (wanted.sign_on == "device") out.sign_on_device = true;
    else if (!wanted.sign_on.empty() && wanted.sign_on != "cpu")
        return {-EINVAL,
                "--sign-on: " + apps::shown(wanted.sign_on) + " makes none; give cpu or device"};
    out.adaptive = !wanted.always_dedu;
    return {};
}

// How many pages a size is. `there` is how many the trace can ask for: what is larger is never
// full, so its tables need be no larger.
status settle_size(const char* flag, const std::string& text, std::uint32_t page_bytes,
                   std::uint64_t there, std::uint64_t& bytes, std::uint32_t& pages) {
    if (status s = parse_size(flag, text, bytes); !s) return s;
    if (bytes % page_bytes != 0)
        return {-EINVAL, std::string(flag) + ": " + apps::shown(text) +
                             " is no whole number of the trace's pages of " +
                             std::to_string(page_bytes) + " bytes; give a multiple of them"};
    if (bytes / page_bytes < least_pages)
        return {-EINVAL, std::string(flag) + ": " + apps::shown(text) +
                             " is less than two of the trace's pages of " +
                             std::to_string(page_bytes) + " bytes; give at least " +
                             std::to_string(least_pages * page_bytes)};
    pages = static_cast<std::uint32_t>(
        std::min({bytes / page_bytes, std::max(there, least_pages), most_pages}));
    return {};
}

status settle_dedu(const request& wanted, std::uint32_t page_bytes, std::uint64_t there,
                   buffer::limits& out) {
    const std::uint32_t most =
        std::min(page_bytes / least_block_bytes, buffer::limits::most_blocks_per_page);
    out.blocks_per_page = usual_blocks;
    if (status s = apps::parse_number<std::uint32_t>("--blocks", wanted.blocks, 1, most,
                                                     "from 1 to " + std::to_string(most),
                                                     out.blocks_per_page);
        !s)
        return s;
    if (!std::has_single_bit(out.blocks_per_page) || page_bytes % out.blocks_per_page != 0)
        return {-EINVAL, "--blocks: " + wanted.blocks + " blocks do not make a page of " +
                             std::to_string(page_bytes) +
                             " bytes; give a power of two that divides it"};
    std::uint64_t table = table_factor * (std::uint64_t{out.host_pages} + out.device_pages);
    if (status s =
            apps::parse_number<std::uint64_t>("--table", wanted.table, least_pages, most_pages,
                                              "from 2 to " + std::to_string(most_pages), table);
        !s)
        return s;
    out.pages =
        static_cast<std::uint32_t>(std::min({table, std::max(there, least_pages), most_pages}));
    std::uint64_t absent =
        absent_factor * (std::uint64_t{out.host_pages} + out.device_pages) * out.blocks_per_page;
    if (status s =
            apps::parse_number<std::uint64_t>("--absent", wanted.absent, 0, most_absent,
                                              "from 0 to " + std::to_string(most_absent), absent);
        !s)
        return s;
    out.absent_blocks =
        static_cast<std::uint32_t>(std::min({absent, std::uint64_t{out.pages} * out.blocks_per_page,
                                             most_absent}));  // a page of the table points at each
    return {};
}

status settle_limits(const request& wanted, const trace::trace_header& header, simulation& out) {
    std::uint64_t there = 0;  // pages of all files, or so many that it does not matter
    for (const trace::file_entry& file : header.files)
        there = std::min(there + std::min(file.pages, most_pages), most_pages);
    buffer::limits& limits = out.limits;
    limits.files = static_cast<std::uint32_t>(std::max<std::size_t>(header.files.size(), 1));
    if (status s = settle_size("--ram", wanted.ram, header.page_bytes, there, out.ram_bytes,
                               limits.host_pages);
        !s)
        return s;
    if (!wanted.gpu.empty())
        if (status s = settle_size("--gpu", wanted.gpu, header.page_bytes, there, out.gpu_bytes,
                                   limits.device_pages);
            !s)
            return s;
    if (out.page_policy == policy::native) out.gpu_bytes = limits.device_pages = 0;
    limits.pages = limits.host_pages + limits.device_pages + 1;
    if (out.page_policy == policy::dedu)
        if (status s = settle_dedu(wanted, header.page_bytes, there, limits); !s) return s;
    if (limits.check() != 0)
        return {-EINVAL, "--ram " + wanted.ram + " and --gpu " + wanted.gpu +
                             " are more blocks than 32 bits can number; give less, or fewer with "
                             "--blocks, --table or --absent"};
    return {};
}

// To and from the device, over the whole time.
double device_rate(const simulated& sum, std::uint64_t block_bytes) {
    return sum.seconds > 0 ? static_cast<double>((sum.moved.to_device() + sum.moved.from_device()) *
                                                 block_bytes) /
                                 sum.seconds
                           : 0.0;
}

double share(std::uint64_t part, std::uint64_t all) {
    return all == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(all);
}

nlohmann::json json_of(const request& wanted, const trace::trace_header& header,
                       const simulation& setup, const simulated& sum) {
    const std::uint64_t block_bytes = header.page_bytes / setup.limits.blocks_per_page,
                        all = sum.accesses();
    nlohmann::json out = {{"program", "penstock replay"},
                          {"version", version()},
                          {"trace", wanted.trace},
                          {"simulated", true},
                          {"policy", wanted.policy},
                          {"order", wanted.order},
                          {"ram_bytes", setup.ram_bytes},
                          {"gpu_bytes", setup.gpu_bytes},
                          {"page_bytes", header.page_bytes},
                          {"blocks_per_page", setup.limits.blocks_per_page},
                          {"accesses", all},
                          {"reads", sum.reads},
                          {"writes", sum.writes},
                          {"flushes", sum.flushes},
                          {"host_hits", sum.host_hits},
                          {"device_hits", sum.device_hits},
                          {"misses", sum.misses},
                          {"loads", sum.loads},
                          {"write_backs", sum.moved.written_pages},
                          {"dropped_pages", sum.moved.dropped_pages},
                          {"demotions", sum.moved.demoted},
                          {"promotions", sum.moved.promoted},
                          {"fills", sum.moved.filled},
                          {"bytes_to_device", sum.moved.to_device() * block_bytes},
                          {"bytes_from_device", sum.moved.from_device() * block_bytes},
                          {"host_hit_share", share(sum.host_hits, all)},
                          {"device_hit_share", share(sum.device_hits, all)},
                          {"miss_share", share(sum.misses, all)},
                          {"pages", sum.pages},
                          {"dirty_pages", sum.dirty_pages},
                          {"pages_with_sharing", sum.pages_with_sharing},
                          {"blocks", sum.blocks},
                          {"absent_blocks", sum.absent_blocks},
                          {"block_references", sum.block_references},
                          {"sharing_ratio", share(sum.pages_with_sharing, sum.pages)},
                          {"seconds", sum.seconds}};
    out["accesses_per_second"] = sum.seconds > 0 ? static_cast<double>(all) / sum.seconds : 0.0;
    return out;
}

std::string text_of(const request& wanted, const simulation& setup, const simulated& sum) {
    const std::uint64_t all = sum.accesses();
    const auto part = [&](const char* name, std::uint64_t number) {
        return apps::with_commas(number) + " " + name + " (" +
               apps::text_of("%.2f %%", 100 * share(number, all)) + ")";
    };
    std::string out = wanted.policy + ", " + wanted.order + ": " + apps::with_commas(all) +
                      " accesses in " + apps::text_of("%.3f s", sum.seconds) + "\n" +
                      part("host hits", sum.host_hits) + ", " +
                      part("device hits", sum.device_hits) + ", " + part("misses", sum.misses) +
                      "\n" + apps::with_commas(sum.loads) + " pages loaded, " +
                      apps::with_commas(sum.moved.written_pages) + " written back, " +
                      apps::with_commas(sum.dirty_pages) + " still dirty\n";
    if (setup.page_policy != policy::native)
        out += apps::with_commas(sum.moved.demoted) + " blocks demoted, " +
               apps::with_commas(sum.moved.promoted) + " promoted\n";
    if (setup.page_policy == policy::dedu)
        out += apps::with_commas(sum.pages) + " pages at the end, " +
               apps::with_commas(sum.pages_with_sharing) +
               " of them share blocks: " + apps::with_commas(sum.blocks) + " blocks for " +
               apps::with_commas(sum.block_references) + ", " +
               apps::with_commas(sum.absent_blocks) + " absent\n";
    return out;
}

// What only the core alone counts is left out.
nlohmann::json json_of_run(const request& wanted, const trace::trace_header& header,
                           const simulation& setup, const run_settings& settings,
                           const run_report& ran) {
    nlohmann::json out = json_of(wanted, header, setup, ran.counts);
    for (const char* name : {"dropped_pages", "fills", "dirty_pages"}) out.erase(name);
    const std::uint64_t all = ran.counts.accesses();
    out["simulated"] = false;
    out["backend"] = ran.on_gpu ? "gpu" : "cpu";
    out["threads"] = settings.threads;
    out["past_the_page_cache"] = settings.past_the_cache;
    out["verified"] = settings.verify;
    if (setup.page_policy == policy::dedu) {
        out["signature"] = settings.dedu.signature == buffer::signature_kind::md5 ? "md5" : "quick";
        out["signed_on"] = settings.dedu.sign_on_device ? "device" : "cpu";
        out["looked_blocks"] = ran.looked_blocks;
        out["shared_blocks"] = ran.shared_blocks;
        out["compared_blocks"] = ran.compared_blocks;
        out["differing_blocks"] = ran.differing_blocks;
    }
    out["flush_seconds"] = ran.flush_seconds;
    out["ms_per_access"] =
        all == 0 ? 0.0 : 1e3 * ran.counts.seconds * settings.threads / static_cast<double>(all);
    out["device_bytes_per_second"] =
        device_rate(ran.counts, header.page_bytes / setup.limits.blocks_per_page);
    return out;
}

std::string text_of_run(const request& wanted, const trace::trace_header& header,
                        const simulation& setup, const run_settings& settings,
                        const run_report& ran) {
    const simulated& sum = ran.counts;
    const std::uint64_t all = sum.accesses();
    const auto part = [&](const char* name, std::uint64_t number) {
        return apps::with_commas(number) + " " + name + " (" +
               apps::text_of("%.2f %%", 100 * share(number, all)) + ")";
    };
    return wanted.policy + ", " + wanted.order + ", on " + (ran.on_gpu ? "gpu" : "cpu") + ": " +
           apps::with_commas(all) + " accesses in " + apps::text_of("%.3f s", sum.seconds) + ", " +
           apps::text_of(
               "%.4f ms",
               all == 0 ? 0.0 : 1e3 * sum.seconds * settings.threads / static_cast<double>(all)) +
           " each\n" + part("host hits", sum.host_hits) + ", " +
           part("device hits", sum.device_hits) + ", " + part("misses", sum.misses) + "\n" +
           apps::with_commas(sum.loads) + " pages loaded, " +
           apps::with_commas(sum.moved.written_pages) + " written back, " +
           apps::with_commas(sum.moved.demoted) + " demoted, " +
           apps::with_commas(sum.moved.promoted) + " promoted; " +
           apps::text_of("%.1f MB/s", 1e-6 * device_rate(sum, header.page_bytes /
                                                                  setup.limits.blocks_per_page)) +
           " to and from the device\n";
}

status replay_against_files(const request& wanted, const trace::trace_header& header,
                            const simulation& setup, const run_settings& settings) {
    if (status s = apps::watch_signals(); !s) return s;
    run_report ran;
    if (status s = run_against_files(wanted.trace, setup, settings, ran); !s) return s;
    if (wanted.json)
        return apps::print_json(apps::line_of(json_of_run(wanted, header, setup, settings, ran)));
    return wanted.quiet ? status{}
                        : apps::print_json(text_of_run(wanted, header, setup, settings, ran));
}

// What fails in `usage` was asked for wrongly.
status replay_trace(const request& wanted, bool& usage) {
    simulation setup;
    usage = true;
    run_settings settings;
    if (status s = settle_words(wanted, setup); !s) return s;
    if (status s = settle_run(wanted, settings); !s) return s;
    if (status s = settle_batches(wanted, setup, settings); !s) return s;
    if (status s = settle_dedu_run(wanted, setup, settings.dedu); !s) return s;
    usage = false;
    trace::reader from;
    if (status s = from.open(wanted.trace); !s) return s;
    usage = true;
    if (status s = settle_limits(wanted, from.header(), setup); !s) return s;
    settings.dedu.blocks_per_page = setup.limits.blocks_per_page;
    settings.dedu.table_pages = setup.limits.pages;
    settings.dedu.absent_blocks = setup.limits.absent_blocks;
    usage = false;
    if (!wanted.simulate) return replay_against_files(wanted, from.header(), setup, settings);
    simulated sum;
    if (status s = simulate(from, setup, sum); !s) return s;
    if (wanted.json)
        return apps::print_json(apps::line_of(json_of(wanted, from.header(), setup, sum)));
    return wanted.quiet ? status{} : apps::print_json(text_of(wanted, setup, sum));
}

}  // namespace

int run(const request& wanted) {
    bool usage = false;
    const status ended = replay_trace(wanted, usage);
    if (ended) return apps::exit_done;
    apps::say("replay: " + ended.message);
    return usage ? apps::exit_usage : apps::exit_failed;
}

}  // namespace penstock::replay
