#include "l3_pages/page_file.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "l3_pages/page_walk.h"

namespace hps {
namespace {

// A multiple of the block, and of no page's size in particular.
constexpr size_t kIndexReadBytes = size_t{1} << 20;

struct HeaderCopies {
  std::optional<PageFileDescription> first;
  std::optional<PageFileDescription> last;
  absl::Status read_error;  // of the disk; the copy then counts as damaged
};

// Reads the header at the file's begin and its copy at the end.
absl::StatusOr<HeaderCopies> ReadHeaders(const PageFileHandle& file, uint64_t file_bytes) {
  const AlignedBytes bytes = AllocateAligned(kPageBlockBytes);
  if (bytes == nullptr) return OutOfMemory("page file: out of memory");
  const std::span<std::byte> block(bytes.get(), kPageBlockBytes);
  HeaderCopies copies;
  const auto read = [&](uint64_t offset, std::optional<PageFileDescription>& copy) {
    const absl::Status done = file.ReadAt(offset, block);
    if (done.ok()) copy = DecodePageHeader(block);
    if (!absl::IsUnavailable(done)) return done;
    copies.read_error.Update(done);
    return absl::OkStatus();
  };
  HPS_RETURN_IF_ERROR(read(0, copies.first));
  // A file of another size has no footer at its end; direct I/O could not even read there.
  if (file_bytes % kPageBlockBytes != 0) return copies;
  HPS_RETURN_IF_ERROR(read(file_bytes - kPageBlockBytes, copies.last));
  return copies;
}

absl::Status CheckDescription(const PageFileDescription& found, const PageFile::Options& expected,
                              uint64_t file_bytes) {
  if (found.file_bytes() != file_bytes) {
    return absl::DataLossError(absl::StrCat(expected.path, ": has ", file_bytes,
                                            " bytes, expected ", found.file_bytes(),
                                            ": the page file is truncated or was appended to"));
  }
  if (found.incarnation != expected.incarnation || found.shape.row_bytes != expected.row_bytes) {
    return absl::DataLossError(absl::StrCat(
        expected.path, ": has rows of ", found.shape.row_bytes, " bytes of incarnation ",
        found.incarnation, ", expected ", expected.row_bytes, " bytes of incarnation ",
        expected.incarnation, ": this is the page file of another table or import"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageFile>> PageFile::Open(const Options& options) {
  HPS_ASSIGN_OR_RETURN(PageFileHandle file,
                       PageFileHandle::OpenForReading(options.path, options.direct));
  HPS_ASSIGN_OR_RETURN(const uint64_t file_bytes, file.Size());
  if (file_bytes < 2 * kPageBlockBytes) {
    return absl::DataLossError(
        absl::StrCat(options.path, ": has ", file_bytes, " bytes: the page file is truncated"));
  }
  HPS_ASSIGN_OR_RETURN(const HeaderCopies headers, ReadHeaders(file, file_bytes));
  if (!headers.first.has_value() && !headers.last.has_value()) {
    HPS_RETURN_IF_ERROR(headers.read_error);
    return absl::DataLossError(absl::StrCat(
        options.path, ": neither header nor footer is intact: this is not a complete page file"));
  }
  const PageFileDescription& description = headers.last ? *headers.last : *headers.first;
  HPS_RETURN_IF_ERROR(CheckDescription(description, options, file_bytes));
  std::unique_ptr<PageFile> opened(new PageFile(std::move(file), description));
  if (!headers.first.has_value() || !headers.last.has_value()) {
    opened->impaired_ = true;
    opened->read_error_ = headers.read_error;
    LogError(absl::StrCat(options.path, ": the ", headers.first ? "footer" : "header",
                          " is damaged; its copy is used. Import the table again",
                          headers.read_error.ok() ? "" : ": ", headers.read_error.message()));
  }
  HPS_RETURN_IF_ERROR(opened->LoadIndex());
  return opened;
}

absl::Status PageFile::LoadIndex() {
  const AlignedBytes bytes = AllocateAligned(kIndexReadBytes);
  try {
    first_keys_.resize(description_.page_count());
  } catch (const std::bad_alloc&) {
    return OutOfMemory("page file: out of memory for the index");
  }
  if (bytes == nullptr) return OutOfMemory("page file: out of memory");
  const uint64_t block_count = description_.index_block_count();
  constexpr uint64_t kBlocksAtOnce = kIndexReadBytes / kPageBlockBytes;
  for (uint64_t begin = 0; begin < block_count; begin += kBlocksAtOnce) {
    const uint64_t count = std::min(kBlocksAtOnce, block_count - begin);
    const absl::Status read = file_.ReadAt(description_.index_offset() + begin * kPageBlockBytes,
                                           {bytes.get(), count * kPageBlockBytes});
    if (absl::IsUnavailable(read)) {
      read_error_ = read;
      return RebuildIndex(read);
    }
    HPS_RETURN_IF_ERROR(read);
    for (uint64_t i = 0; i < count; ++i) {
      const std::span<const std::byte> block(bytes.get() + i * kPageBlockBytes, kPageBlockBytes);
      if (!PageIsIntact(description_.incarnation, description_.index_block_number(begin + i),
                        block)) {
        return RebuildIndex(
            absl::DataLossError(absl::StrCat(file_.path(), ": the index is damaged")));
      }
      const size_t first = (begin + i) * kPageKeysPerIndexBlock;
      std::memcpy(first_keys_.data() + first, block.data() + kPageChecksumBytes,
                  std::min(kPageKeysPerIndexBlock, first_keys_.size() - first) * sizeof(Key));
    }
  }
  return absl::OkStatus();
}

// Takes the first keys from the pages. Those of a damaged page are unknown: it gets all keys
// between its neighbours, which are then lost.
absl::Status PageFile::RebuildIndex(const absl::Status& why) {
  impaired_ = true;
  LogError(absl::StrCat(why.message(),
                        "; the index is made again from all pages. Import the table again"));
  PageWalk walk(*this);
  const PageShape& shape = description_.shape;
  Key next = description_.first_key;  // the lowest key that the next page can have
  for (size_t page = 0; page < first_keys_.size(); ++page) {
    HPS_ASSIGN_OR_RETURN(const PageWalk::Page found, walk.Next());
    first_keys_[page] = next;
    if (!found.intact) continue;
    first_keys_[page] = LoadLittleEndian<Key>(found.bytes.data() + shape.keys_offset());
    const size_t last = description_.rows_of_page(page) - 1;
    const Key last_key =
        LoadLittleEndian<Key>(found.bytes.data() + shape.keys_offset() + last * sizeof(Key));
    if (last_key < description_.last_key) next = last_key + 1;
  }
  return absl::OkStatus();
}

size_t PageFile::PageOf(Key key, size_t from) const {
  const size_t count = first_keys_.size();
  size_t low = from;
  size_t step = 1;
  while (low + step < count && first_keys_[low + step] <= key) {
    low += step;
    step *= 2;
  }
  const auto begin = first_keys_.begin();
  const auto found =
      std::upper_bound(begin + static_cast<std::ptrdiff_t>(low) + 1,
                       begin + static_cast<std::ptrdiff_t>(std::min(low + step, count)), key);
  return static_cast<size_t>(found - begin) - 1;
}

PageKeyRange PageFile::RangeOf(size_t page) const {
  PageKeyRange range{first_keys_[page], description_.last_key, description_.rows_of_page(page)};
  // Pages of a rebuilt index may have the same first key; the last of them then has the range.
  if (page + 1 < first_keys_.size()) {
    const Key next = first_keys_[page + 1];
    range.last = next > range.first ? next - 1 : range.first;
  }
  return range;
}

void PageFile::LogDamage(size_t page) const {
  const PageKeyRange range = RangeOf(page);
  LogError(absl::StrCat(file_.path(), ": page ", page, " is damaged: the rows of keys ",
                        range.first, " to ", range.last, " are lost; import the table again"));
}

absl::StatusOr<std::vector<PageKeyRange>> PageFile::FindDamage() const {
  HPS_RETURN_IF_ERROR(read_error_);
  PageWalk walk(*this);
  std::vector<PageKeyRange> damage;
  bool follows = false;  // the page before is damaged, too
  for (size_t page = 0; page < first_keys_.size(); ++page) {
    HPS_ASSIGN_OR_RETURN(const PageWalk::Page found, walk.Next());
    if (!found.intact) {
      const PageKeyRange range = RangeOf(page);
      if (follows) {
        damage.back().last = range.last;
        damage.back().row_count += range.row_count;
      } else {
        damage.push_back(range);
      }
    }
    follows = !found.intact;
  }
  return damage;
}

}  // namespace hps
