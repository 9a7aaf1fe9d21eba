"""Files for tests of readers and of ingestion, made by the libraries that write them."""

import io
from pathlib import Path

__all__ = ["pdf_of", "write_docx", "write_pdf", "write_pptx"]


def pdf_of(*pages: str) -> bytes:
    """The bytes of a PDF with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        font = "<< /Font << /F1 3 0 R >> >>"
        box = "[0 0 612 792]"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox {box} /Resources {font} /Contents {5 + 2 * at} 0 R >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    data, places = io.BytesIO(b""), list[int]()
    data.write(b"%PDF-1.4\n")
    for number, one in enumerate(objects, 1):
        places.append(data.tell())
        data.write(f"{number} 0 obj\n{one}\nendobj\n".encode())
    begin = data.tell()
    data.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    data.write("".join(f"{place:010} 00000 n \n" for place in places).encode())
    data.write(f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{begin}\n%%EOF\n".encode())
    return data.getvalue()


def write_pdf(file: Path, *pages: str, password: str | None = None) -> Path:
    """Write a PDF, encrypted if there is a password."""
    file.write_bytes(pdf_of(*pages))
    if password is not None:
        from pypdf import PdfWriter

        writer = PdfWriter(clone_from=file)
        writer.encrypt(password, algorithm="RC4-128")
        writer.write(file)
    return file


def write_docx(file: Path) -> Path:
    """Write a Word file with a paragraph, a table and another paragraph."""
    from docx import Document

    made = Document()
    made.add_paragraph("The tide turns.")
    table = made.add_table(rows=2, cols=2)
    for row, values in zip(table.rows, (("port", "hour"), ("Brest", "six")), strict=True):
        for cell, value in zip(row.cells, values, strict=True):
            cell.text = value
    made.add_paragraph("It turns again.")
    made.save(str(file))
    return file


def write_pptx(file: Path) -> Path:
    """Write a presentation: a slide with a title and notes, an empty slide, and one with a table in it."""
    from pptx import Presentation
    from pptx.util import Inches

    made = Presentation()
    first = made.slides.add_slide(made.slide_layouts[5])
    first.shapes.title.text = "Tides"
    first.notes_slide.notes_text_frame.text = "Tell of the moon."
    made.slides.add_slide(made.slide_layouts[6])
    last = made.slides.add_slide(made.slide_layouts[6])
    table = last.shapes.add_table(1, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
    table.cell(0, 0).text, table.cell(0, 1).text = "Brest", "six"
    made.save(str(file))
    return file
