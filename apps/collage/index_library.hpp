// `penstock-collage index`: from a folder of pictures to a library. Its steps, and all of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/files.hpp"
#include "common/process.hpp"
#include "library.hpp"

namespace penstock::collage {

// Which tiles are cut out of which pictures: a plan made from the pictures' sizes alone, so that
// every tile's number is known before the first pixel is read.

struct source_picture {
    std::string path;
    std::uint32_t width = 0;
    std::uint32_t height = 0;
};

// One scale of one picture: 1 / 2^level of its size. Tiles lie `stride` pixels apart.
struct level_plan {
    std::uint32_t width;
    std::uint32_t height;
    std::uint32_t columns;
    std::uint32_t rows;
    std::uint64_t first;  // place of its first tile among all that could be cut
};

struct picture_plan {
    source_picture source;
    std::vector<level_plan> levels;
};

struct tiling {
    std::vector<picture_plan> pictures;
    std::uint32_t stride = 0;
    std::uint64_t places = 0;  // that could be cut
    std::uint64_t tiles = 0;   // that are cut: all, or so many spread evenly over the places

    // How many tiles are cut before place `at`: the number of the tile there, if one is cut there.
    [[nodiscard]] std::uint64_t tiles_before(std::uint64_t at) const {
        __extension__ typedef unsigned __int128 wide;
        return static_cast<std::uint64_t>(wide{at} * tiles / places);
    }
};

// `stride` 0: the largest, at most a tile's side, that gives `tiles` of them. `tiles` 0: all there
// are; then a stride of 0 stands for a tile's side. -ERANGE and a message if there are too few, or
// too many for one library.
status plan_tiles(const std::vector<source_picture>& pictures, std::uint32_t scales,
                  std::uint32_t stride, std::uint64_t tiles, tiling& out);

// A picture that comes row by row, at all its scales at once: keeps the last rows of each scale and
// hands out bands of 32. Memory: 64 rows a scale, whatever the picture's height.
class pyramid {
public:
    // emit(level, row, pixels): `pixels` are the 32 rows of a band, whose tiles are row number
    // `row` of that level's plan.
    using emitter = std::function<void(std::uint32_t, std::uint32_t, const std::uint8_t*)>;
    pyramid(const picture_plan& plan, std::uint32_t stride, emitter emit);

    // Where the next row of the full scale belongs; valid until the next push().
    std::uint8_t* next_row() { return row_for(levels_.front()); }
    // That row is there.
    void push() { pushed(0); }

private:
    struct level {
        std::uint32_t width;
        std::uint32_t height;
        std::uint32_t seen = 0;    // rows so far
        std::uint32_t filled = 0;  // rows in the buffer
        std::vector<std::uint8_t> rows;
    };
    static std::uint8_t* row_for(level& l);
    void pushed(std::uint32_t number);

    std::uint32_t stride_;
    emitter emit_;
    std::vector<level> levels_;
};

// Each pixel of `out` is the mean of four, rounded to nearest: two of `above` and the two below
// them.
void halve_rows(const std::uint8_t* above, const std::uint8_t* below, std::uint32_t out_width,
                std::uint8_t* out);

// The pictures below a folder.
struct found_pictures {
    // By path, so that the same folder always gives the same library.
    std::vector<source_picture> pictures;
    std::uint64_t other_files = 0;        // no pictures at all
    std::uint64_t too_small = 0;          // below 32 pixels in width or height
    std::vector<std::string> complaints;  // one line for each picture or folder that cannot be read
};

// Links are not followed below the folder; hidden files are pictures like others.
status find_pictures(const std::string& folder, found_pictures& out);

// A file of the library that many threads write to at places of their own. Thread-safe.
class staged_file {
public:
    // `bytes`: room to set aside at once, so that a full disk is found before the work. 0: none.
    status create(const std::string& path, std::uint64_t bytes);
    status write(const void* data, std::uint64_t bytes, std::uint64_t at) const;
    status read(void* data, std::uint64_t bytes, std::uint64_t at) const;
    // Network file systems report some failures only here.
    status close();

private:
    [[nodiscard]] status failed(int code) const;
    std::string path_;
    apps::unique_fd fd_;
};

// A library that appears whole or not at all: its folder is filled under a passing name beside its
// place, and renamed at the end.
class staging_folder {
public:
    staging_folder() = default;
    ~staging_folder();  // removes what was not committed
    staging_folder(const staging_folder&) = delete;
    staging_folder& operator=(const staging_folder&) = delete;

    // `path` may name a library, which is replaced at the end, an empty folder, or nothing.
    status create(const std::string& path);
    [[nodiscard]] std::string file(const std::string& name) const { return passing_ + "/" + name; }
    void remove(const std::string& name) const;
    status commit();

private:
    [[nodiscard]] int set_rights() const;
    [[nodiscard]] bool exchange() const;  // of the two folders; false and errno

    std::string target_;
    std::string passing_;       // empty: nothing to clean up
    apps::leftover noted_;      // the same, for signals
    unsigned mode_if_new_ = 0;  // of the folder; until commit() it is open to this user only
};

inline constexpr const char* features_name = "features";  // only while the library is made
inline constexpr std::uint64_t feature_bytes = features * sizeof(std::uint16_t);  // of one tile

// Where tile number n goes: n * tile_bytes, n * record_stride_bytes, n * feature_bytes.
struct tile_files {
    staged_file tiles;
    staged_file histograms;
    staged_file features;
};

// Cuts the planned tiles out of the pictures and writes tiles, histograms and features. All
// processors: some read pictures, the others count what was read.
//
// Pictures that turn out damaged are read to that point and reported; then the files hold no use
// for a library, and the caller plans again without them. `damaged`: their paths and messages.
// `done` counts pictures.
status cut_tiles(const tiling& plan, const tile_files& files, std::uint32_t threads,
                 std::atomic<std::uint64_t>& done, std::map<std::string, std::string>& damaged);

struct index_request {
    std::string folder;
    std::string out;
    std::uint64_t tiles = 0;   // 0: all
    std::uint32_t stride = 0;  // 0: automatic
    std::uint32_t scales = 4;
    std::uint64_t seed = 20160606;
    bool strict = false;
    bool quiet = false;  // no progress bar
    std::uint32_t threads = 1;
};

struct index_report {
    library made;
    found_pictures found;
    double find_seconds = 0;
    double cut_seconds = 0;    // reading the pictures, tiles and histograms; all rounds
    double width_seconds = 0;  // choosing the width of the hash functions
    double table_seconds = 0;
    double total_seconds = 0;
    double cpu_seconds = 0;
};

status index_library(const index_request& asked, index_report& out);

}  // namespace penstock::collage
