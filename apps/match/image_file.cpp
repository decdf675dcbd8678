// Checks files of images, and makes files of random ones.
#include "image_file.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unordered_map>
#include <utility>

#include "common/files.hpp"
#include "common/message.hpp"
#include "common/numbers.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::match {

namespace {

constexpr const char* cure =
    "; name a file made by penstock-match make, or one of the form that docs/apps/match.md "
    "describes";

status unusable(const std::string& path, const std::string& defect) {
    return {-EINVAL, apps::shown(path) + ": " + defect + cure};
}

status check_header(const std::string& path, const image_header& h) {
    if (h.magic != image_magic)
        return unusable(path, "does not begin with PIMAGES1, so it is no file of images");
    if (h.version != image_version)
        return unusable(path, "has version " + std::to_string(h.version) +
                                  ", and this program reads version " +
                                  std::to_string(image_version));
    if (h.header_bytes != sizeof(image_header))
        return unusable(path, "its header says that it has " + std::to_string(h.header_bytes) +
                                  " bytes, and it has 64");
    if (!h.can_be_compared())
        return unusable(path,
                        "images of " + shape_of(h) + " numbers cannot be compared: from 1 to " +
                            apps::with_commas(most_floats) + " in all, of at most 16 channels");
    if (h.stride_floats < h.floats() || h.stride_floats % stride_unit_floats != 0 ||
        h.stride_floats > 2 * most_floats)
        return unusable(path, "images of " + shape_of(h) + " numbers cannot lie " +
                                  std::to_string(h.stride_floats) +
                                  " numbers apart: a multiple of 16, no less than the image and at "
                                  "most " +
                                  apps::with_commas(2 * most_floats));
    if (h.data_offset < sizeof(image_header) || h.data_offset % data_alignment_bytes != 0 ||
        h.data_offset > (std::uint64_t{1} << 40))
        return unusable(path, "its images cannot begin at byte " + std::to_string(h.data_offset) +
                                  ": a multiple of 4096 behind the header, at most 2^40");
    if (h.image_count > most_images)
        return unusable(path, "has " + apps::with_commas(h.image_count) + " images; at most " +
                                  apps::with_commas(most_images) + " can be told apart");
    return {};
}

}  // namespace

std::string shape_of(const image_header& h) {
    return std::to_string(h.width) + "x" + std::to_string(h.height) + "x" +
           std::to_string(h.channels);
}

status open_images(const std::string& path, image_file& out) {
    out.path = path;
    struct stat info {};
    if (status s = apps::look_at_input(path, "name a file of images that can be read", info); !s)
        return s;
    const auto bytes = static_cast<std::uint64_t>(info.st_size);
    if (bytes < sizeof out.header)
        return unusable(
            path, "has " + std::to_string(bytes) + " bytes, which is less than a header of 64");
    apps::unique_fd fd;
    if (status s = apps::open_to_read(path, "a file of images", fd, O_NONBLOCK | O_NOCTTY); !s)
        return s;
    if (status s = apps::read_exactly(path, fd, &out.header, sizeof out.header, 0); !s) return s;
    if (status s = check_header(path, out.header); !s) return s;
    const std::uint64_t expected = out.header.data_offset + out.header.data_bytes();
    if (bytes == expected) return {};
    return {-EINVAL, apps::shown(path) + ": has " + apps::with_commas(bytes) +
                         " bytes and should have " + apps::with_commas(expected) + " for " +
                         apps::with_commas(out.header.image_count) + " images of " +
                         shape_of(out.header) + "; copy it again or make it again"};
}

status check_shapes(const image_file& first, const image_file& other) {
    const image_header &a = first.header, &b = other.header;
    if (a.width == b.width && a.height == b.height && a.channels == b.channels) return {};
    return {-EINVAL, apps::shown(other.path) + ": has images of " + shape_of(b) +
                         ", and the queries in " + apps::shown(first.path) + " are of " +
                         shape_of(a) + "; name databases of images of the queries' shape"};
}

// The command make.

namespace {

constexpr const char* make_about =
    "Makes files of random images to search in: DIR/queries.images and DIR/database-1.images to "
    "DIR/database-N.images. Numbers are\n"
    "even between 0 and 1 and depend on the seed alone. Some queries have a match: it is the query "
    "with a little noise, at a random\n"
    "place of a random database, and, for every other one, again in the database after it.\n";

constexpr std::uint64_t piece_bytes = 64u << 20;  // made by all threads, then written

// Which query is where in a database.
using planted_images = std::unordered_map<std::uint64_t, std::uint64_t>;

// Image `image` of a database; database 0 are the queries. A planted one is its query with noise.
void make_image(const make_session& asked, std::uint64_t database, std::uint64_t image,
                const planted_images& planted, float* to) {
    const auto start = [&](std::uint64_t part, std::uint64_t number) {
        return mix64(apps::random_start(asked.seed, part) + number);
    };
    const std::uint64_t floats = asked.form.floats(), own = start(database, image);
    const auto query = planted.find(image);
    const std::uint64_t from = query == planted.end() ? own : start(0, query->second);
    for (std::uint64_t k = 0; k < floats; ++k) to[k] = apps::even_number(from, k);
    if (query == planted.end()) return;
    const auto noise = static_cast<float>(asked.noise);
    for (std::uint64_t k = 0; k < floats; ++k) to[k] += noise * (2 * apps::even_number(own, k) - 1);
}

// Files on one file system share its room. Before the first is written: they take long.
status check_room_of_all(const make_session& asked) {
    std::map<std::uint64_t, std::pair<std::string, std::uint64_t>> by_device;  // a file, all bytes
    for (std::uint64_t database = 0; database < asked.files.size(); ++database) {
        const std::string& path = asked.files[database];
        const auto place = apps::place_of(path);
        auto& [first, bytes] = by_device[place ? place->device : 0];
        if (first.empty()) first = path;
        bytes += asked.bytes_of(database);
    }
    for (const auto& [device, of_it] : by_device)
        if (status s = apps::check_room(of_it.first, of_it.second,
                                        "give fewer or smaller images, or another place");
            !s)
            return s;
    return {};
}

status write_file(const make_session& asked, std::uint64_t database,
                  const planted_images& planted) {
    const std::string& path = asked.files[database];
    const std::uint64_t images = asked.images_of(database);
    image_header h = asked.form;
    h.image_count = images;
    apps::output_file file;
    if (status s = file.open(path); !s) return s;
    std::vector<char> head(data_alignment_bytes, 0);
    std::copy_n(reinterpret_cast<const char*>(&h), sizeof h, head.data());
    if (status s = file.write(head.data(), head.size()); !s) return s;
    const std::uint64_t at_once = std::max<std::uint64_t>(1, piece_bytes / h.stride_bytes());
    std::vector<float> piece(std::min(at_once, images) * h.stride_floats, 0.0f);
    for (std::uint64_t first = 0; first < images; first += at_once) {
        const std::uint64_t count = std::min(at_once, images - first);
        apps::on_threads(asked.threads, [&](std::uint32_t thread) {
            for (std::uint64_t i = thread; i < count; i += asked.threads)
                make_image(asked, database, first + i, planted, piece.data() + i * h.stride_floats);
        });
        if (was_interrupted())
            return {-ECANCELED, "interrupted; " + apps::shown(path) + " was not written"};
        if (status s =
                file.write(reinterpret_cast<const char*>(piece.data()), count * h.stride_bytes());
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

// Which queries are where, by database. Those that have a match are spread evenly over all.
std::vector<planted_images> plant_all(const make_session& asked, std::uint64_t& planted) {
    std::vector<planted_images> out(asked.databases + 1);  // none is among the queries
    for (std::uint64_t query = 0; query < asked.queries; ++query) {
        const auto before = static_cast<std::uint64_t>(static_cast<double>(query) * asked.matches);
        const auto after =
            static_cast<std::uint64_t>(static_cast<double>(query + 1) * asked.matches);
        if (before == after) continue;
        const std::uint64_t random = mix64(mix64(asked.seed) ^ query),
                            database = 1 + random % asked.databases;
        if (out[database].size() == asked.images) continue;  // it is full
        plant(out[database], asked.images, mix64(random), query);
        if (planted++ % 2 == 0 && database < asked.databases &&
            out[database + 1].size() < asked.images)
            plant(out[database + 1], asked.images, mix64(random + 1), query);
    }
    return out;
}

// "64x64" or "64x64x3".
status read_shape(const std::string& flag, const std::string& text, image_header& out) {
    std::uint32_t* const sides[] = {&out.width, &out.height, &out.channels};
    const char *at = text.data(), *const end = text.data() + text.size();
    int count = 0;
    out.channels = 1;
    for (bool more = true; more && count < 3; ++count) {
        const auto parsed = std::from_chars(at, end, *sides[count]);
        if (parsed.ec != std::errc()) break;
        at = parsed.ptr;
        more = end - at >= 2 && *at == 'x';
        if (more) ++at;
    }
    out.stride_floats = padded_floats(out.floats());
    if (at == end && count >= 2 && out.can_be_compared()) return {};
    return {-EINVAL, flag + ": " + apps::shown(text) +
                         " is no shape; give width x height, as in 64x64, or with up to 16 "
                         "channels, as in 64x64x3, of at most " +
                         apps::with_commas(most_floats) + " numbers in all"};
}

}  // namespace

make_session::make_session() : command({"make", make_about, "", apps::command_kind::make}) {}

void make_session::add_options(apps::option_list& add) {
    add.operand("DIR", folder, "Folder that gets the files; it is made if it is not there");
    add.number("--queries", queries, {0, most_images, ""}, "Images to search for; default: 2016",
               "N");
    add.number("--images", images, {0, most_images, ""}, "Images of each database; default: 25000",
               "N");
    add.number("--databases", databases, {1, 1000, "from 1 to 1000"},
               "How many databases; default: 3", "N");
    add.value("--shape", read_shape, form,
              "Width and height of an image, and channels if there are several; default: 64x64",
              "WxH[xC]");
    add.number("--matches", matches, {0, 1, ""},
               "Fraction of the queries that have a match, 0 to 1; default: 0.5", "F");
    add.number("--noise", noise, {0, 1, ""},
               "Most by which a number of a match differs, 0 to 1; default: 0.01", "X");
    add.number("--seed", seed, {0, UINT64_MAX, ""}, "Of the random numbers", "N");
}

status make_session::check() {
    for (std::uint64_t database = 0; database <= databases; ++database) {
        files.push_back(folder +
                        (database == 0 ? "/queries" : "/database-" + std::to_string(database)) +
                        ".images");
        if (status s = apps::check_not_report(common.json, files.back()); !s) return s;
        bytes += bytes_of(database);
    }
    return {};
}

status make_session::run() {
    apps::stopwatch watch;
    threads = apps::thread_count(settings.worker_threads);
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
        return {-errno, apps::shown(folder) + ": " + error_text(-errno) +
                            "; name a folder that can be made"};
    if (status s = check_room_of_all(*this); !s) return s;
    const std::vector<planted_images> places = plant_all(*this, planted);
    for (std::uint64_t database = 0; database <= databases; ++database)
        if (status s = write_file(*this, database, places[database]); !s) return s;
    // The square of even noise is a third of the largest on average.
    threshold = std::max(static_cast<double>(form.floats()) * noise * noise, 1e-6);
    seconds = watch.lap();
    return {};
}

nlohmann::json make_session::json_of() const {
    return {{"files", files},     {"bytes", bytes},         {"queries", queries},
            {"images", images},   {"seed", seed},           {"planted", planted},
            {"threads", threads}, {"threshold", threshold}, {"seconds", {{"total", seconds}}}};
}

void make_session::say_summary() const {
    apps::say(folder + ": " + std::to_string(files.size()) + " files, " + format_size(bytes) +
              ", in " + apps::text_of("%.2f s", seconds) + "; " + apps::with_commas(planted) +
              " queries have a match, found with --threshold " + apps::text_of("%.6g", threshold));
}

}  // namespace penstock::match
