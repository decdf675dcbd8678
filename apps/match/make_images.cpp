#include "report.hpp"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <sys/stat.h>
#include <unordered_map>

#include "common/message.hpp"
#include "common/files.hpp"
#include "common/random_numbers.hpp"
#include "common/stopwatch.hpp"
#include "common/threads.hpp"
#include "image_file.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::match {

namespace {

constexpr std::uint64_t piece_bytes = 64u << 20;  // made by all threads, then written

// Which query is where in a database.
using planted_images = std::unordered_map<std::uint64_t, std::uint64_t>;

struct image_maker {
    const make_request& asked;
    std::uint64_t floats;
    std::uint64_t stride;

    // Where the random numbers of an image begin. Database 0 are the queries.
    [[nodiscard]] std::uint64_t start(std::uint64_t database, std::uint64_t image) const {
        return mix64(apps::random_start(asked.seed, database) + image);
    }
    void fill(std::uint64_t database, std::uint64_t image, float* to) const {
        const std::uint64_t from = start(database, image);
        for (std::uint64_t k = 0; k < floats; ++k) to[k] = apps::even_number(from, k);
    }
    // Adds noise to what is there.
    void blur(std::uint64_t database, std::uint64_t image, float* to) const {
        const std::uint64_t from = start(database, image);
        const auto noise = static_cast<float>(asked.noise);
        for (std::uint64_t k = 0; k < floats; ++k)
            to[k] += noise * (2 * apps::even_number(from, k) - 1);
    }
};

status write_file(const std::string& path, const image_maker& maker, std::uint64_t images,
                  std::uint32_t threads, const std::function<void(std::uint64_t, float*)>& fill) {
    apps::output_file file;
    if (status s = file.open(path); !s) return s;
    std::vector<char> head(data_alignment_bytes, 0);
    image_header h;
    h.image_count = images;
    h.width = maker.asked.width, h.height = maker.asked.height, h.channels = maker.asked.channels;
    h.stride_floats = static_cast<std::uint32_t>(maker.stride);
    std::copy_n(reinterpret_cast<const char*>(&h), sizeof h, head.data());
    if (status s = file.write(head.data(), head.size()); !s) return s;
    const std::uint64_t at_once =
        std::max<std::uint64_t>(1, piece_bytes / (maker.stride * sizeof(float)));
    std::vector<float> piece(std::min(at_once, std::max<std::uint64_t>(images, 1)) * maker.stride,
                             0.0f);
    for (std::uint64_t first = 0; first < images; first += at_once) {
        const std::uint64_t count = std::min(at_once, images - first);
        apps::on_threads(threads, [&](std::uint32_t thread) {
            for (std::uint64_t i = thread; i < count; i += threads)
                fill(first + i, piece.data() + i * maker.stride);
        });
        if (was_interrupted())
            return {-ECANCELED, "interrupted; " + apps::shown(path) + " was not written"};
        if (status s = file.write(reinterpret_cast<const char*>(piece.data()),
                                  count * maker.stride * sizeof(float));
            !s)
            return s;
    }
    return file.commit();
}

// A free place of the database, from a random one on.
void plant(planted_images& in, std::uint64_t images, std::uint64_t random, std::uint64_t query) {
    std::uint64_t at = random % images;
    while (in.count(at) != 0) at = (at + 1) % images;
    in[at] = query;
}

// Which queries are where. Those that have a match are spread evenly over all.
std::vector<planted_images> plant_all(const make_request& asked, std::uint64_t& planted) {
    std::vector<planted_images> out(asked.databases);
    planted = 0;
    for (std::uint64_t query = 0; query < asked.queries; ++query) {
        const auto before = static_cast<std::uint64_t>(static_cast<double>(query) * asked.matches);
        const auto after =
            static_cast<std::uint64_t>(static_cast<double>(query + 1) * asked.matches);
        if (before == after) continue;
        const std::uint64_t random = mix64(mix64(asked.seed) ^ query),
                            database = random % asked.databases;
        if (out[database].size() == asked.images) continue;  // it is full
        plant(out[database], asked.images, mix64(random), query);
        if (planted++ % 2 == 0 && database + 1 < asked.databases &&
            out[database + 1].size() < asked.images)
            plant(out[database + 1], asked.images, mix64(random + 1), query);
    }
    return out;
}

}  // namespace

status make_images(const request& asked, make_report& report) {
    apps::stopwatch watch;
    const make_request& m = asked.make;
    const std::uint64_t floats = std::uint64_t{m.width} * m.height * m.channels;
    const image_maker maker{m, floats, padded_floats(floats)};
    report.threads = apps::thread_count(asked.settings.worker_threads);
    if (::mkdir(m.folder.c_str(), 0777) != 0 && errno != EEXIST)
        return {-errno, apps::shown(m.folder) + ": " + error_text(-errno) +
                            "; name a folder that can be made"};
    const auto add = [&](const std::string& name, std::uint64_t images,
                         const std::function<void(std::uint64_t, float*)>& fill) -> status {
        report.files.push_back(m.folder + "/" + name);
        report.bytes += data_alignment_bytes + images * maker.stride * sizeof(float);
        return write_file(report.files.back(), maker, images, report.threads, fill);
    };
    if (status s = add("queries.images", m.queries,
                       [&](std::uint64_t i, float* to) { maker.fill(0, i, to); });
        !s)
        return s;
    const std::vector<planted_images> planted = plant_all(m, report.planted);
    for (std::uint64_t d = 1; d <= m.databases; ++d) {
        const auto fill = [&](std::uint64_t i, float* to) {
            const auto query = planted[d - 1].find(i);
            if (query == planted[d - 1].end()) return maker.fill(d, i, to);
            maker.fill(0, query->second, to);
            maker.blur(d, i, to);
        };
        if (status s = add("database-" + std::to_string(d) + ".images", m.images, fill); !s)
            return s;
    }
    // The square of even noise is a third of the largest on average.
    report.threshold = std::max(static_cast<double>(floats) * m.noise * m.noise, 1e-6);
    report.seconds = watch.lap();
    return {};
}

}  // namespace penstock::match
